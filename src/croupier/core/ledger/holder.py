"""Names of holders: `namespace/pod/uid`, or `namespace/pod` while a Reservation waits for its pod."""


def pod_key(holder: str) -> str:
    """`namespace/pod` of the holder."""
    return "/".join(holder.split("/")[:2])


def uid(holder: str) -> str:
    """The UID of the pod; empty while a Reservation waits for it."""
    return holder.split("/")[2] if holder.count("/") == 2 else ""


def reservation_holder(holder: str) -> str:
    """The holder name that a Reservation uses for this pod; empty if `holder` has no UID."""
    return pod_key(holder) if uid(holder) else ""
