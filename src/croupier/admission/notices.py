"""Events about what admission did to a pod, written when the pod exists.

At admission a pod has no uid, often no name yet, and may still be refused by somebody else: an Event then
would hang in the air, and a dry run must leave none. So what is worth telling is kept for a minute and
told when the watch shows the pod. Pods of one owner share the prefix of their names and what is told of
them. Whichever replicas saw them admitted, the name of the Event comes from the pod and the words, so
that it is told once. Memory is bounded, and an Event is a courtesy: what is late or too much is left out.
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
"""Seconds a pod may need from our answer until we see it."""
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
    """Its own, or the prefix of one that is generated."""
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
        """A pod was admitted, and this is worth telling once it exists."""
        if not notes or request.dry_run or request.object is None:
            return
        key = _name(request)
        now = self.clock.monotonic()
        self._expected[key] = _Expected(notes, now + PATIENCE)
        self._expected.move_to_end(key)
        self._forget(now)

    def seen(self, change: Change[Sighting]) -> None:
        """Fits a subscriber of a store of pods."""
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
                continue  # another pod of that name, which was not judged like this
            kind: Literal["Normal", "Warning"] = "Normal" if rewritten else "Warning"
            self.recorder.record(regarding, note.reason, note.sentence, action="Admit", type=kind)

    def _forget(self, now: float) -> None:
        while self._expected:
            oldest = next(iter(self._expected.values()))
            if oldest.until >= now and len(self._expected) <= REMEMBERED:
                return
            self._expected.popitem(last=False)


def naming(what: Happening) -> str:
    """The same in every replica."""
    words = f"{what.regarding.uid} {what.reason} {what.note}"
    return events.name(what, hashlib.sha256(words.encode()).hexdigest()[:16])


def _name(request: AdmissionRequest) -> _Name:
    found = (request.object or {}).get("metadata")
    metadata = found if isinstance(found, dict) else {}
    namespace = request.namespace or ""
    if name := request.name or metadata.get("name"):
        return _Name(namespace, str(name), generated=False)
    return _Name(namespace, str(metadata.get("generateName") or ""), generated=True)
