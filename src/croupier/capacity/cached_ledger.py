"""The ledger of one node as this process knows it. No I/O.

It is the newer of our last read or write and the watched object (version_tracker.py). Our own
uncommitted claims are added, so that their cards are not offered to other pods. The writer and the watch
change it; its owner is notified after each change.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from croupier.api.mps import ledger as wire
from croupier.api.mps import ledger_codec, ledger_summary
from croupier.api.mps.ledger import NodeReservation, NodeReservationSpec
from croupier.capacity import batching
from croupier.capacity.batching import BatchChange, ClaimChange
from croupier.capacity.version_tracker import NewestSource, ObjectVersion, VersionTracker
from croupier.core.ledger.ledger import Ledger
from croupier.kube.client import codec, merge
from croupier.kube.client.resource import Raw


@dataclass(frozen=True, slots=True)
class StoredLedger:
    """The whole object of our last read or write, and its ledger."""

    raw: Raw
    ledger: Ledger
    summarized: bool = True
    """Whether the object has the summary of the ledger; another program may have written it without one."""

    @property
    def state(self) -> ObjectVersion:
        meta = self.raw["metadata"]
        return ObjectVersion(meta["uid"], meta["resourceVersion"])


class CachedLedger:
    def __init__(self, node: str, changed: "Callable[[CachedLedger], None]") -> None:
        """`changed` is called when the view may have changed."""
        self.node = node
        self._changed = changed
        self.versions = VersionTracker()
        self.own: StoredLedger | None = None
        self._shown: NodeReservation | None = None
        self._shown_ledger: Ledger | None = None
        self._claims: list[ClaimChange] = []
        self._view: Ledger | None = None
        self._current = False
        """Whether `_view` is up to date."""

    @property
    def committed(self) -> Ledger | None:
        """The newest ledger known to be in the API server."""
        match self.versions.newest:
            case NewestSource.OWN if self.own is not None:
                return self.own.ledger
            case NewestSource.WATCHED if self._shown is not None:
                if self._shown_ledger is None:
                    self._shown_ledger = ledger_codec.decode(self.node, self._shown.spec)
                return self._shown_ledger
            case _:
                return None

    @property
    def view(self) -> Ledger | None:
        """The committed ledger including our uncommitted claims."""
        if not self._current:
            self._view, self._current = self.committed, True
            if self._view is not None and self._claims:
                self._view = batching.apply_batch(self._view, self._claims).ledger
        return self._view

    def expect(self, claim: ClaimChange) -> None:
        """Add an uncommitted claim."""
        self._claims.append(claim)
        if self._current and self._view is not None:
            self._view, _ = batching.apply(self._view, claim)
        self._changed(self)

    def expect_only(self, steps: Iterable[BatchChange]) -> None:
        """Replace the uncommitted claims."""
        self._claims = [step for step in steps if isinstance(step, ClaimChange)]
        self._recompute()

    def observe(self, watched: NodeReservation) -> None:
        self._shown, self._shown_ledger = watched, None
        self.versions.observe(ObjectVersion(watched.metadata.uid, watched.metadata.resource_version))
        self._recompute()

    def observe_deleted(self, last: NodeReservation) -> None:
        self._shown, self._shown_ledger = None, None
        self.versions.observe_deleted(last.metadata.uid)
        self._recompute()

    def relisted(self, asked_at: float) -> None:
        self.versions.relisted(asked_at)
        self._recompute()

    def answer(self, raw: Raw, now: float) -> None:
        """The API server returned this object for our request."""
        raw["metadata"].pop("managedFields", None)  # large, and the API server keeps it if it is left out
        spec = codec.convert(NodeReservationSpec, raw["spec"])
        ledger = ledger_codec.decode(self.node, spec)
        self.own = StoredLedger(raw, ledger, ledger_summary.is_current(spec, ledger))
        self.versions.answer(self.own.state, now)
        self._recompute()

    def observe_absent(self) -> None:
        """The object does not exist in the API server any more."""
        self.versions.observe_absent()
        self._recompute()

    def _recompute(self) -> None:
        self._current = False
        if self.versions.own is None:
            self.own = None
        self._changed(self)


def updated_object(read: StoredLedger, ledger: Ledger) -> Raw:
    """The object to PUT: `ledger` merged into the object as it was read; unknown fields are kept."""
    spec = merge.typed(read.raw["spec"], ledger_codec.encode(ledger), keys=wire.IDENTITY_FIELDS)
    return {**read.raw, "spec": spec}


def new_object(node: str, ledger: Ledger) -> Raw:
    """The object to create."""
    spec: Any = msgspec.to_builtins(ledger_codec.encode(ledger))
    return {"metadata": {"name": node}, "spec": spec}
