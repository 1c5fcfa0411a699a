"""Series of the CPU market: supply, given and price of each book, per node, for six hours every ten seconds.

Four bytes a value, in rings: 500 nodes with two books take about 35 MB once they are full.
"""

import math
from array import array
from typing import Final

from croupier.api.market_report import MarketReport
from croupier.core import quantity

INTERVAL: Final = 10.0
"""Seconds between two points."""
POINTS: Final = 6 * 360


class _Ring:
    """The points of one node; `at` is relative to the first, because four bytes cannot hold a date."""

    def __init__(self, begins: float) -> None:
        self.begins = begins
        self.last = -INTERVAL
        self.columns: dict[str, array[float]] = {"at": array("f")}
        self.next = 0

    def add(self, at: float, values: dict[str, float]) -> None:
        self.last = at - self.begins
        length = len(self.columns["at"])
        for name in values.keys() - self.columns.keys():
            self.columns[name] = array("f", [float("nan")] * length)
        values = {**values, "at": self.last}
        for name, column in self.columns.items():
            value = values.get(name, float("nan"))
            if length < POINTS:
                column.append(value)
            else:
                column[self.next] = value
        if length >= POINTS:
            self.next = (self.next + 1) % POINTS

    def read(self) -> dict[str, list[float | None]]:
        ordered = {name: column[self.next :] + column[: self.next] for name, column in self.columns.items()}
        plain = {name: [_known(value) for value in column] for name, column in ordered.items()}
        plain["at"] = [round(self.begins + value, 1) for value in ordered["at"]]
        return plain


class MarketSeries:
    def __init__(self) -> None:
        self._rings: dict[str, _Ring] = {}

    def add(self, node: str, report: MarketReport, at: float) -> None:
        """Add a point, unless the last one is too recent."""
        ring = self._rings.get(node)
        if ring is None:
            ring = self._rings[node] = _Ring(at)
        if at - ring.begins - ring.last < INTERVAL:
            return
        values = {"factor": report.factor}
        for book in report.books:
            values[f"{book.name}.supply"] = _cores(book.supply)
            values[f"{book.name}.given"] = _cores(book.given)
            values[f"{book.name}.price"] = book.price
        ring.add(at, values)

    def forget(self, node: str) -> None:
        self._rings.pop(node, None)

    def of(self, node: str) -> dict[str, list[float | None]]:
        """The series of a node, oldest first; None is a point without this value."""
        ring = self._rings.get(node)
        return ring.read() if ring is not None else {"at": []}


def _cores(written: str) -> float:
    try:
        return quantity.parse(written).millis / 1000
    except quantity.InvalidQuantityError:
        return float("nan")


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)
