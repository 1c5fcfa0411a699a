"""Who held which share of which card, from when to when: derived from the history of rows. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from croupier.core.ledger import holder as holder_names
from croupier.core.model import name_list
from croupier.ui.journal import JournalLine
from croupier.ui.tables import HOLDERS, MODE, SLOTS

TIME_SLICE: Final = 4

Holding = tuple[str, str, str]
"""Card, holder and share."""


@dataclass(frozen=True, slots=True)
class HoldLine:
    card: str
    pod: str
    share: str
    since: float
    until: float | None
    """None: still held at the end of the history."""

    def as_data(self) -> dict[str, Any]:
        return {
            "card": self.card,
            "pod": self.pod,
            "share": self.share,
            "from": self.since,
            "to": self.until,
        }


def lines(history: Iterable[JournalLine], *, card: str = "", pod: str = "") -> list[HoldLine]:
    """The lines of one card, of one pod or of all, in the order of their begin."""
    found = list(_Replay(card, pod).run(history))
    return sorted(found, key=lambda line: (line.since, line.card, line.pod))


class _Replay:
    def __init__(self, card: str, pod: str) -> None:
        self._card = card
        self._pod = pod
        self._names: dict[str, str] = {}
        self._open: dict[str, dict[Holding, float]] = {}

    def run(self, history: Iterable[JournalLine]) -> Iterator[HoldLine]:
        for line in history:
            if line.whole:
                self._names = {}  # another process gives other numbers
            named = line.tables.get("holders", {})
            self._names |= {number: row[0] for number, row in named.items() if row is not None}
            yield from self._change(line)
        for holdings in self._open.values():
            for holding, since in holdings.items():
                yield _line(holding, since, None)

    def _change(self, line: JournalLine) -> Iterator[HoldLine]:
        cards: Mapping[str, Any] = line.tables.get("cards", {})
        names = cards.keys() | self._open.keys() if line.whole else cards.keys()
        for name in names:
            if self._card and name != self._card:
                continue
            row = cards.get(name)
            now = set(self._holdings(name, row)) if row is not None else set()
            before = self._open.get(name, {})
            yield from (_line(gone, before[gone], line.at) for gone in before.keys() - now)
            self._open[name] = {holding: before.get(holding, line.at) for holding in now}
            if not now:
                del self._open[name]

    def _holdings(self, card: str, row: Any) -> Iterator[Holding]:
        shares = [(str(number), share_text(row[MODE], amount)) for number, amount in row[HOLDERS]]
        shares += [(str(slot[4]), f"MIG {slot[0]}") for slot in row[SLOTS] if slot[4]]
        for number, share in shares:
            holder = self._names.get(number, "")
            if not self._pod or holder_names.pod_key(holder) == self._pod:
                yield card, holder, share


def share_text(mode: int, amount: int) -> str:
    if mode == TIME_SLICE:
        return name_list.counted(amount, "slice")
    return "whole" if amount == 100 else f"{amount} %"


def _line(holding: Holding, since: float, until: float | None) -> HoldLine:
    card, holder, share = holding
    return HoldLine(card, holder_names.pod_key(holder), share, since, until)
