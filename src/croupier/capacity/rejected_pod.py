"""Why a pod does not exist: the rejection its owner received when it tried to create the pod.

A ResourceQuota, a pool without access or an admission policy rejects a pod before it exists. The owner
(ReplicaSet, Job) records this as a FailedCreate Event, so the name of the Deployment or Job is enough.
"""

from dataclasses import dataclass

from croupier.api import kinds, quotas
from croupier.api.core_v1 import Event
from croupier.core.pods import quota
from croupier.core.pods.quota import QuotaRefusal
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import NotFound

REASON = "FailedCreate"


@dataclass(frozen=True, slots=True)
class RejectedPod:
    """A pod whose creation was rejected."""

    key: str
    owner: str
    """`ReplicaSet trainer-5d4f8`."""
    sentence: str
    quota: str = ""
    """The ResourceQuota that rejected it, if it was one."""


async def find(api: Client, namespace: str, name: str) -> RejectedPod | None:
    """The latest rejection; `name` is that of the pod, its owner or its Deployment. None if there is none."""
    events = (await api.list(kinds.EVENTS, Selection(namespace, fields=f"reason={REASON}"))).items
    matching = [event for event in events if _concerns(event.regarding.name, name)]
    if not matching:
        return None
    latest = max(matching, key=_last_time)
    owner = f"{latest.regarding.kind} {latest.regarding.name}"
    stop = quota.read(latest.note)
    key = f"{namespace}/{name}"
    if stop is None:
        return RejectedPod(key, owner, _message(latest.note))
    return RejectedPod(key, owner, await _quota_message(api, namespace, stop), stop.quota)


async def _quota_message(api: Client, namespace: str, stop: QuotaRefusal) -> str:
    try:
        current = await api.get(quotas.RESOURCE_QUOTAS, stop.quota, namespace=namespace)
    except NotFound:
        return quota.sentence(stop, None)
    return quota.sentence(stop, quotas.limits(current))


def _concerns(owner: str, name: str) -> bool:
    """A pod is named after its ReplicaSet or Job, and that after its Deployment or CronJob."""
    return owner == name or name.startswith(f"{owner}-") or owner.startswith(f"{name}-")


def _last_time(event: Event) -> str:
    """Time of the last occurrence in RFC 3339, which sorts as text."""
    created = event.metadata.creation_timestamp
    times = (
        event.series.last_observed_time if event.series else "",
        event.event_time,
        created and created.isoformat(),
    )
    return next((time for time in times if time), "")


def _message(note: str) -> str:
    return note.removeprefix("Error creating: ")
