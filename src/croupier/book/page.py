"""The ledger of one node as this process knows it. No I/O.

It is the newer of what we last read or wrote and what the watch shows (`sight.py`). On top come our
own claims that are not committed yet, so that nobody is offered what is being taken.
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
    """The whole object as the API server last gave it to us, and the ledger it says."""

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
        """Whether `_view` is what it should be."""

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
        """The committed ledger with our claims on their way counted in."""
        if not self._current:
            self._view, self._current = self.committed, True
            if self._view is not None and self._claims:
                self._view = fold.fold(self._view, self._claims).ledger
        return self._view

    def expect(self, claim: Take) -> None:
        """A claim is on its way."""
        self._claims.append(claim)
        if self._current and self._view is not None:
            self._view, _ = fold.apply(self._view, claim)

    def expect_only(self, steps: Iterable[Step]) -> None:
        """These, and no others, are on their way."""
        self._claims = [step for step in steps if isinstance(step, Take)]
        self._current = False

    def show(self, found: NodeReservation) -> None:
        self._shown, self._shown_ledger, self._current = found, None, False
        self.sight.show(State(found.metadata.uid, found.metadata.resource_version))

    def vanish(self, last: NodeReservation) -> None:
        self._shown, self._shown_ledger, self._current = None, None, False
        self.sight.vanish(last.metadata.uid)
        self._forget_mine()

    def relisted(self, asked_at: float) -> None:
        self.sight.relisted(asked_at)
        self._current = False
        self._forget_mine()

    def answer(self, raw: Raw, now: float) -> None:
        """The API server gave us this object."""
        raw["metadata"].pop("managedFields", None)  # long, and kept by the API server when left out
        spec = codec.convert(NodeReservationSpec, raw["spec"])
        self.mine = Read(raw, translate.read(self.node, spec))
        self.sight.answer(self.mine.state, now)
        self._current = False
        self._forget_mine()

    def absent(self) -> None:
        """The API server has no such object any more."""
        self.sight.absent()
        self._current = False
        self._forget_mine()

    def _forget_mine(self) -> None:
        if self.sight.mine is None:
            self.mine = None


def written(read: Read, ledger: Ledger) -> Raw:
    """The object to PUT: `ledger` laid over the object as it was read, whatever else is in that."""
    spec = draft.overlay(read.raw["spec"], translate.write(ledger), keys=wire.SAME)
    return {**read.raw, "spec": spec}


def first(node: str, ledger: Ledger) -> Raw:
    """The object to create."""
    spec: Any = msgspec.to_builtins(translate.write(ledger))
    return {"metadata": {"name": node}, "spec": spec}
