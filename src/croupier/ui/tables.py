"""The tables of rows that browsers copy, the deltas that change them, and the numbers of holders. No I/O.

A row changes only through `put`, which compares it with the published row: a value that does not differ, or
that returns to the published value before the next flush, costs no delta.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "cards": ("cluster", "nodes", "cards", "pools"),
    "names": ("holders", "waiting", "reservations", "market", "findings", "changes"),
}
"""The tables of each part of a snapshot."""
TABLES: Final = tuple(table for tables in PARTS.values() for table in tables)
KEPT_DELTAS: Final = 20_000
NODE, MODE, POOL, STATE, FLAGS, HOLDERS, SLOTS, REASON = 0, 2, 3, 4, 5, 8, 9, 11
ASSIGNED, OFFERS, LEDGER_POOL = 12, 13, 14
"""Indexes in a row of `cards`."""


@dataclass(frozen=True, slots=True)
class Delta:
    """The rows that changed between two flushes; None is a deleted row."""

    seq: int
    at: float
    tables: dict[str, dict[str, Any]]
    before: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The previous values of the same rows: they decide which viewers had the row."""


class Tables:
    def __init__(self, process: str, *, kept: int = KEPT_DELTAS) -> None:
        self.process = process
        self.seq = 0
        self.at = 0.0
        self._rows: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
        self._pending: dict[str, dict[str, Any]] = {}
        self._deltas: deque[Delta] = deque(maxlen=kept)
        self._numbers: dict[tuple[str, str], int] = {}
        self._holders: dict[int, str] = {}
        self._retired: deque[tuple[int, int]] = deque()
        self._last_number = 0

    def put(self, table: str, key: str, value: Any | None) -> None:
        """Set a row, or delete it with None; the next flush publishes it."""
        pending = self._pending.setdefault(table, {})
        if self._rows[table].get(key) == value:
            pending.pop(key, None)
        else:
            pending[key] = value

    def flush(self, at: float) -> Delta | None:
        """Publish everything that changed since the last flush as one delta."""
        changed = {table: rows for table, rows in self._pending.items() if rows}
        self._pending = {}
        if not changed:
            return None
        self.seq += 1
        self.at = at
        before = {table: {key: self._rows[table].get(key) for key in rows} for table, rows in changed.items()}
        fold(self._rows, changed)
        delta = Delta(self.seq, at, changed, before)
        self._deltas.append(delta)
        self._forget_holders()
        return delta

    def rows(self, part: str) -> dict[str, dict[str, Any]]:
        """The published tables of a part; read them before the next flush."""
        return {table: self._rows[table] for table in PARTS[part]}

    def row(self, table: str, key: str) -> Any | None:
        """A published row."""
        return self._rows[table].get(key)

    def latest(self, table: str, key: str) -> Any | None:
        """A row as the next flush will publish it."""
        pending = self._pending.get(table, {})
        return pending[key] if key in pending else self._rows[table].get(key)

    def pending(self) -> Mapping[str, Mapping[str, Any]]:
        """The rows that the next flush will publish."""
        return self._pending

    def since(self, seq: int) -> Sequence[Delta] | None:
        """The deltas after `seq`; None if it is not remembered."""
        if seq == self.seq:
            return ()
        oldest = self._deltas[0].seq if self._deltas else self.seq + 1
        if seq > self.seq or seq < oldest - 1:
            return None
        return [self._deltas[index] for index in range(seq + 1 - oldest, len(self._deltas))]

    def number(self, node: str, holder: str) -> int:
        """The number of a holder on a node, given at its first appearance and never reused."""
        number = self._numbers.get((node, holder))
        if number is None:
            self._last_number += 1
            number = self._numbers[node, holder] = self._last_number
            self._holders[number] = holder
        return number

    def retire(self, node: str, holder: str) -> None:
        """The holder holds nothing any more. Its name is known until the deltas with its number are gone."""
        number = self._numbers.pop((node, holder), None)
        if number is not None:
            self._retired.append((self.seq + 1, number))

    def holder(self, number: int) -> str:
        """The holder of a number; empty if it is not known any more."""
        return self._holders.get(number, "")

    def _forget_holders(self) -> None:
        oldest = self._deltas[0].seq
        while self._retired and self._retired[0][0] < oldest:
            self._holders.pop(self._retired.popleft()[1], None)


def fold(rows: dict[str, dict[str, Any]], changed: Mapping[str, Mapping[str, Any]]) -> None:
    """Apply the rows of a delta to a copy of the tables, as browsers do. Repeating it changes nothing."""
    for table, changes in changed.items():
        target = rows.setdefault(table, {})
        for key, value in changes.items():
            if value is None:
                target.pop(key, None)
            else:
                target[key] = value
