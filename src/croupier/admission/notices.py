"""Events about the admission of a pod, recorded when the pod exists.

At admission a pod has no UID and often no name, and another webhook may still refuse it: an Event would refer
to no object, and a dry run must not cause one. So Events are kept for a minute and recorded when the watch
delivers the pod. Pods of one owner share their name prefix and their Events. Several replicas may have
admitted the pod, so the name of an Event is derived from the pod and the message, and it is recorded once.
Memory is bounded, and Events are best effort: late or excess ones are dropped.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

from croupier.admission.review import AdmissionRequest
from croupier.api.sighting import SIGHTINGS, Sighting
from croupier.core.fallbacks.fallback import Note
from croupier.kube import events
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.journal import Happening, Reference
from croupier.kube.store import Change

REPORTER: Final = "gpu-admission-webhook"
REWRITTEN: Final = "GPUFallback"
PATIENCE: Final = 60.0
"""Seconds from the admission of a pod until the watch must deliver it."""
REMEMBERED: Final = 10_000


class Recorder(Protocol):
    def record(
        self,
        regarding: Reference,
        reason: str,
        note: str,
        *,
        action: str,
        type: Literal["Normal", "Warning"] = "Normal",
    ) -> None: ...


class _Name(NamedTuple):
    namespace: str
    name: str
    """The name of the pod, or the prefix of a generated name."""
    generated: bool


class _Expected(NamedTuple):
    notes: tuple[Note, ...]
    until: float


@dataclass(slots=True)
class Notices:
    recorder: Recorder
    clock: Clock = field(default_factory=SystemClock)
    _expected: OrderedDict[_Name, _Expected] = field(init=False, default_factory=OrderedDict)

    def expect(self, request: AdmissionRequest, notes: tuple[Note, ...]) -> None:
        """Record these Events once the admitted pod exists."""
        if not notes or request.dry_run or request.object is None:
            return
        key = _name(request)
        now = self.clock.monotonic()
        self._expected[key] = _Expected(notes, now + PATIENCE)
        self._expected.move_to_end(key)
        self._forget(now)

    def seen(self, change: Change[Sighting]) -> None:
        """Can subscribe to a store of pods."""
        if not self._expected or change.old is not None or change.new is None:
            return
        pod = change.new.metadata
        for key in (
            _Name(pod.namespace, pod.name, generated=False),
            _Name(pod.namespace, pod.generate_name, generated=True),
        ):
            expected = self._expected.get(key)
            if expected is not None and self.clock.monotonic() <= expected.until:
                self._tell(change.new, expected.notes)
                if not key.generated:
                    del self._expected[key]
                return

    def _tell(self, pod: Sighting, notes: tuple[Note, ...]) -> None:
        regarding = events.about(SIGHTINGS, pod)
        for note in notes:
            rewritten = note.reason == REWRITTEN
            if rewritten != bool(pod.metadata.annotations.fallback):
                continue  # another pod of that name, with another outcome
            kind: Literal["Normal", "Warning"] = "Normal" if rewritten else "Warning"
            self.recorder.record(regarding, note.reason, note.sentence, action="Admit", type=kind)

    def _forget(self, now: float) -> None:
        while self._expected:
            oldest = next(iter(self._expected.values()))
            if oldest.until >= now and len(self._expected) <= REMEMBERED:
                return
            self._expected.popitem(last=False)


def naming(what: Happening) -> str:
    """The same name in every replica."""
    words = f"{what.regarding.uid} {what.reason} {what.note}"
    return events.name(what, hashlib.sha256(words.encode()).hexdigest()[:16])


def _name(request: AdmissionRequest) -> _Name:
    raw = (request.object or {}).get("metadata")
    metadata = raw if isinstance(raw, dict) else {}
    namespace = request.namespace or ""
    if name := request.name or metadata.get("name"):
        return _Name(namespace, str(name), generated=False)
    return _Name(namespace, str(metadata.get("generateName") or ""), generated=True)
