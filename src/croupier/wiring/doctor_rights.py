"""Whether each process may do what it cannot work without, asked of the API server.

Not all that is granted, only what a process stops at: a missing right shows here before it shows as silence.
An account that does not exist is not asked about; its process is not installed.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from croupier.core.installation.diagnosis_cluster import Lacking
from croupier.kube import together
from croupier.kube.client import Client, Selection
from croupier.kube.resource import Raw, Resource

REVIEWS: Final[Resource[Raw]] = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False, dict
)
ACCOUNTS: Final[Resource[Raw]] = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, dict)
AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Right:
    """`resource` as RBAC names it, with its subresource: `gpudevices/status`."""

    verbs: tuple[str, ...]
    resource: str
    group: str = ""
    here: bool = False
    """In our namespace only."""
    name: str = ""
    """Of one object only."""


FOLLOW: Final = ("list", "watch")
GPU: Final = "gpu.deckhouse.io"
MPS: Final = "mps.nvidia.com"
MARKET: Final = "allocation.mbcas.io"
TELL: Final = Right(("create",), "events", "events.k8s.io")
REPORTS: Final = Right(FOLLOW, "leases", "coordination.k8s.io", here=True)


def _election(lease: str) -> tuple[Right, ...]:
    group = "coordination.k8s.io"
    return (
        Right(("create",), "leases", group, here=True),
        Right(("get", "update"), "leases", group, here=True, name=lease),
    )


_KEEPING: Final = (
    Right(("list", "watch", "patch"), "reservations", MPS),
    Right(("patch",), "reservations/status", MPS),
    Right(FOLLOW, "nodes"),
    Right(("list", "watch", "patch"), "pods"),
    Right(FOLLOW, "gpudevices", GPU),
    Right(FOLLOW, "gpupools", GPU),
    Right(("patch",), "gpudevices/status", GPU),
    TELL,
)

_BIND: Final = Right(("create",), "pods/binding")
_SHARED: Final = Right(("list", "watch", "create", "update", "delete"), "nodereservations", MPS)
_CARRIED_OVER: Final = Right(("list", "delete"), "nodereservations", MPS)
LEDGER: Final = "croupier-ledger"
EXTENDER: Final = "croupier-extender"

NEEDS: Final[dict[str, tuple[Right, ...]]] = {
    "gpu-inventory-controller": (
        Right(FOLLOW, "nodes"),
        Right(("list", "watch", "create", "patch", "delete"), "gpudevices", GPU),
        Right(("list", "watch", "create", "patch"), "gpunodeinventories", GPU),
        Right(("patch",), "gpudevices/status", GPU),
        Right(("patch",), "gpunodeinventories/status", GPU),
        TELL,
        REPORTS,
        *_election("croupier-inventory"),
    ),
    "gpu-bootstrap-controller": (
        Right(FOLLOW, "nodes"),
        Right(FOLLOW, "pods"),
        Right(FOLLOW, "gpudevices", GPU),
        Right(FOLLOW, "gpunodeinventories", GPU),
        Right(("patch",), "gpunodeinventories/status", GPU),
        TELL,
        REPORTS,
        *_election("croupier-bootstrap"),
    ),
    "gpupool-controller": (
        Right(("list", "watch", "patch"), "nodes"),
        Right(FOLLOW, "pods"),
        Right(("list", "watch", "patch"), "gpudevices", GPU),
        Right(("list", "watch", "patch"), "gpupools", GPU),
        Right(("patch",), "gpudevices/status", GPU),
        Right(("patch",), "gpupools/status", GPU),
        Right(FOLLOW, "reservations", MPS),
        Right(FOLLOW, "nodereservations", MPS),
        Right(("list", "watch", "create", "patch", "delete"), "configmaps", here=True),
        TELL,
        REPORTS,
        *_election("croupier-pools"),
    ),
    LEDGER: (_SHARED, *_KEEPING, *_election("croupier-manager")),
    EXTENDER: (_CARRIED_OVER, *_KEEPING, _BIND, *_election("croupier-book")),
    "croupier-cpu-limits": (
        Right(FOLLOW, "pods"),
        Right(("patch",), "pods/resize"),
        Right(("list", "watch", "patch"), "podallocations", MARKET),
        Right(("patch",), "podallocations/status", MARKET),
        TELL,
        REPORTS,
        *_election("croupier-cpu-limits"),
    ),
    "gpu-admission-webhook": (
        Right(FOLLOW, "nodes"),
        Right(FOLLOW, "pods"),
        Right(FOLLOW, "gpupools", GPU),
        TELL,
    ),
    "croupier-node": (
        Right(("list", "watch", "patch"), "nodes"),
        Right(("patch",), "nodes/status"),
        Right(("list", "watch", "patch", "delete"), "pods"),
        Right(FOLLOW, "gpudevices", GPU),
        Right(FOLLOW, "configmaps", here=True),
        Right(("create", "patch"), "leases", "coordination.k8s.io", here=True),
        TELL,
    ),
    "croupier-market": (
        Right(FOLLOW, "nodes"),
        Right(FOLLOW, "pods"),
        Right(("list", "watch", "create", "patch"), "podallocations", MARKET),
        Right(("create", "patch"), "leases", "coordination.k8s.io", here=True),
    ),
}
"""By account, with the book in memory."""
BESIDE_A_LEDGER: Final = (
    Right(("list", "watch", "update"), "nodereservations", MPS),
    Right(FOLLOW, "gpupools", GPU),
    Right(("patch",), "pods"),
    _BIND,
)
"""What an extender needs where the ledger is in the API server, and others keep it."""


def needs(accounts: Collection[str]) -> dict[str, tuple[Right, ...]]:
    """Of the accounts there are; one that keeps the ledger tells which book it is."""
    wanted = {**NEEDS, **({EXTENDER: BESIDE_A_LEDGER} if LEDGER in accounts else {})}
    return {account: rights for account, rights in wanted.items() if account in accounts}


async def lacking(api: Client, namespace: str) -> list[Lacking]:
    there = {one["metadata"]["name"] for one in (await api.list(ACCOUNTS, Selection(namespace))).items}

    async def ask(account: str, right: Right, verb: str) -> Lacking | None:
        answer = await api.create(REVIEWS, _review(account, right, verb, namespace))
        return None if answer["status"]["allowed"] else Lacking(account, verb, _told(right, namespace))

    questions = [
        ask(account, right, verb)
        for account, rights in needs(there).items()
        for right in rights
        for verb in right.verbs
    ]
    return [one for one in await together.all_of(questions, at_once=AT_ONCE) if one is not None]


def _review(account: str, right: Right, verb: str, namespace: str) -> Raw:
    resource, _, subresource = right.resource.partition("/")
    asked = {
        "verb": verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace if right.here else "",
        "name": right.name,
    }
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "groups": groups,
            "resourceAttributes": {name: value for name, value in asked.items() if value},
        }
    }


def _told(right: Right, namespace: str) -> str:
    group = f".{right.group}" if right.group else ""
    place = f" in {namespace}" if right.here else ""
    return f"{right.resource}{group}{f' {right.name}' if right.name else ''}{place}"
