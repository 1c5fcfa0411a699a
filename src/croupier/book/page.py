"""The ledger of one node as this process knows it. No I/O.

It is the newer of our last read or write and the watched object (version_tracker.py). Our own
uncommitted claims are added, so that their cards are not offered to other pods.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from croupier.api.mps import ledger as wire
from croupier.api.mps import translate
from croupier.api.mps.ledger import NodeReservation, NodeReservationSpec
from croupier.book import fold
from croupier.book.fold import Step, Take
from croupier.book.sight import Newest, Sight, State
from croupier.core.ledgers.ledger import Ledger
from croupier.kube import codec, draft
from croupier.kube.resource import Raw


@dataclass(frozen=True, slots=True)
class Read:
    """The whole object of our last read or write, and its ledger."""

    raw: Raw
    ledger: Ledger

    @property
    def state(self) -> State:
        meta = self.raw["metadata"]
        return State(meta["uid"], meta["resourceVersion"])


class Page:
    def __init__(self, node: str) -> None:
        self.node = node
        self.sight = Sight()
        self.mine: Read | None = None
        self._shown: NodeReservation | None = None
        self._shown_ledger: Ledger | None = None
        self._claims: list[Take] = []
        self._view: Ledger | None = None
        self._current = False
        """Whether `_view` is up to date."""

    @property
    def committed(self) -> Ledger | None:
        """The newest ledger known to be in the API server."""
        match self.sight.newest:
            case Newest.MINE if self.mine is not None:
                return self.mine.ledger
            case Newest.SHOWN if self._shown is not None:
                if self._shown_ledger is None:
                    self._shown_ledger = translate.read(self.node, self._shown.spec)
                return self._shown_ledger
            case _:
                return None

    @property
    def view(self) -> Ledger | None:
        """The committed ledger including our uncommitted claims."""
        if not self._current:
            self._view, self._current = self.committed, True
            if self._view is not None and self._claims:
                self._view = fold.fold(self._view, self._claims).ledger
        return self._view

    def expect(self, claim: Take) -> None:
        """Add an uncommitted claim."""
        self._claims.append(claim)
        if self._current and self._view is not None:
            self._view, _ = fold.apply(self._view, claim)

    def expect_only(self, steps: Iterable[Step]) -> None:
        """Replace the uncommitted claims."""
        self._claims = [step for step in steps if isinstance(step, Take)]
        self._current = False

    def show(self, watched: NodeReservation) -> None:
        self._shown, self._shown_ledger, self._current = watched, None, False
        self.sight.show(State(watched.metadata.uid, watched.metadata.resource_version))

    def vanish(self, last: NodeReservation) -> None:
        self._shown, self._shown_ledger, self._current = None, None, False
        self.sight.vanish(last.metadata.uid)
        self._forget_mine()

    def relisted(self, asked_at: float) -> None:
        self.sight.relisted(asked_at)
        self._current = False
        self._forget_mine()

    def answer(self, raw: Raw, now: float) -> None:
        """The API server returned this object for our request."""
        raw["metadata"].pop("managedFields", None)  # large, and the API server keeps it if it is left out
        spec = codec.convert(NodeReservationSpec, raw["spec"])
        self.mine = Read(raw, translate.read(self.node, spec))
        self.sight.answer(self.mine.state, now)
        self._current = False
        self._forget_mine()

    def absent(self) -> None:
        """The object does not exist in the API server any more."""
        self.sight.absent()
        self._current = False
        self._forget_mine()

    def _forget_mine(self) -> None:
        if self.sight.mine is None:
            self.mine = None


def written(read: Read, ledger: Ledger) -> Raw:
    """The object to PUT: `ledger` merged into the object as it was read; unknown fields are kept."""
    spec = draft.overlay(read.raw["spec"], translate.write(ledger), keys=wire.SAME)
    return {**read.raw, "spec": spec}


def first(node: str, ledger: Ledger) -> Raw:
    """The object to create."""
    spec: Any = msgspec.to_builtins(translate.write(ledger))
    return {"metadata": {"name": node}, "spec": spec}
