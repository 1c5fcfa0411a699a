"""Events about the admission of a pod, recorded when the pod exists.

At admission a pod has no UID and often no name, and another webhook may still refuse it: an Event would refer
to no object, and a dry run must not cause one. So Events are kept for a minute and recorded when the watch
delivers the pod. Pods of one owner share their name prefix and their Events. Several replicas may have
admitted the pod, so the name of an Event is derived from the pod and the message, and it is recorded once.
Memory is bounded, and Events are best effort: late or excess ones are dropped.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from croupier.admission.review import AdmissionRequest
from croupier.api.pod_identity import POD_IDENTITIES, PodIdentity
from croupier.core.fallbacks.fallback import PodEvent
from croupier.kube.cache.store import ObjectChange
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.controller import events
from croupier.kube.controller.event_series import EventType

REPORTER: Final = "gpu-admission-webhook"
REWRITTEN: Final = "GPUFallback"
EXPIRY: Final = 60.0
"""Seconds from the admission of a pod until the watch must deliver it."""
MAX_PENDING: Final = 10_000


class _PodName(NamedTuple):
    namespace: str
    name: str
    """The name of the pod, or the prefix of a generated name."""
    generated: bool


class _PendingEvents(NamedTuple):
    notes: tuple[PodEvent, ...]
    until: float


@dataclass(slots=True)
class PendingPodEvents:
    record: Callable[..., None]
    """`record` of an EventRecorder."""
    clock: Clock = field(default_factory=SystemClock)
    _expected: OrderedDict[_PodName, _PendingEvents] = field(init=False, default_factory=OrderedDict)

    def expect(self, request: AdmissionRequest, notes: tuple[PodEvent, ...]) -> None:
        """Record these Events once the admitted pod exists."""
        if not notes or request.dry_run or request.object is None:
            return
        key = _name(request)
        now = self.clock.monotonic()
        self._expected[key] = _PendingEvents(notes, now + EXPIRY)
        self._expected.move_to_end(key)
        self._forget(now)

    def seen(self, change: ObjectChange[PodIdentity]) -> None:
        """Can subscribe to a store of pods."""
        if not self._expected or change.old is not None or change.new is None:
            return
        pod = change.new.metadata
        for key in (
            _PodName(pod.namespace, pod.name, generated=False),
            _PodName(pod.namespace, pod.generate_name, generated=True),
        ):
            expected = self._expected.get(key)
            if expected is not None and self.clock.monotonic() <= expected.until:
                self._tell(change.new, expected.notes)
                if not key.generated:
                    del self._expected[key]
                return

    def _tell(self, pod: PodIdentity, notes: tuple[PodEvent, ...]) -> None:
        regarding = events.reference_to(POD_IDENTITIES, pod)
        for note in notes:
            rewritten = note.reason == REWRITTEN
            if rewritten != bool(pod.metadata.annotations.fallback):
                continue  # another pod of that name, with another outcome
            kind: EventType = "Normal" if rewritten else "Warning"
            self.record(regarding, note.reason, note.sentence, action="Admit", type=kind)

    def _forget(self, now: float) -> None:
        while self._expected:
            oldest = next(iter(self._expected.values()))
            if oldest.until >= now and len(self._expected) <= MAX_PENDING:
                return
            self._expected.popitem(last=False)


def _name(request: AdmissionRequest) -> _PodName:
    raw = (request.object or {}).get("metadata")
    metadata = raw if isinstance(raw, dict) else {}
    namespace = request.namespace or ""
    if name := request.name or metadata.get("name"):
        return _PodName(namespace, str(name), generated=False)
    return _PodName(namespace, str(metadata.get("generateName") or ""), generated=True)
