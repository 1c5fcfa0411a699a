"""Why a pod is not there: what its owner was told when it tried to create it.

A quota, a pool that is closed to it or a policy stops a pod before it exists. Whoever asks about it then
knows the name of the Deployment or Job at best; that is enough, because owners note such refusals as Events.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from croupier.api.core_v1 import Event
    from croupier.core.pods.quota import Stop
    from croupier.kube.client import Client

REASON = "FailedCreate"


@dataclass(frozen=True, slots=True)
class Absent:
    """A pod that was to be created, and was refused."""

    key: str
    owner: str
    """`ReplicaSet trainer-5d4f8`."""
    sentence: str
    quota: str = ""
    """The ResourceQuota that stops it, if it is one."""


async def look(api: "Client", namespace: str, name: str) -> Absent | None:
    """`name` is the pod's, its owner's, or that of the Deployment behind it. None if nothing was noted."""
    from croupier.api import kinds
    from croupier.core.pods import quota
    from croupier.kube.client import Selection

    noted = await api.list(kinds.EVENTS, Selection(namespace, fields=f"reason={REASON}"))
    about = [one for one in noted.items if _concerns(one.regarding.name, name)]
    if not about:
        return None
    latest = max(about, key=_moment)
    owner = f"{latest.regarding.kind} {latest.regarding.name}"
    stop = quota.read(latest.note)
    key = f"{namespace}/{name}"
    if stop is None:
        return Absent(key, owner, _told(latest.note))
    return Absent(key, owner, await _stopped(api, namespace, stop), stop.quota)


async def _stopped(api: "Client", namespace: str, stop: "Stop") -> str:
    from croupier.api import quotas
    from croupier.core.pods import quota
    from croupier.kube.errors import NotFound

    try:
        found = await api.get(quotas.RESOURCE_QUOTAS, stop.quota, namespace=namespace)
    except NotFound:
        return quota.sentence(stop, None)
    return quota.sentence(stop, quotas.limits(found))


def _concerns(owner: str, name: str) -> bool:
    """A pod is named after its ReplicaSet or Job, and that after its Deployment or CronJob."""
    return owner == name or name.startswith(f"{owner}-") or owner.startswith(f"{name}-")


def _moment(event: "Event") -> str:
    """Of the last time it happened, as far as it is known; RFC 3339 sorts by itself."""
    made = event.metadata.creation_timestamp
    known = (
        event.series.last_observed_time if event.series else "",
        event.event_time,
        made and made.isoformat(),
    )
    return next((one for one in known if one), "")


def _told(note: str) -> str:
    return note.removeprefix("Error creating: ")
