"""A trace: the CPU demand of each pod over time, as it would be without throttling.

CSV with the columns `time,pod,class,demand`: whole seconds from the start, any name, `latency` or
`elastic`, and CPU. A row is valid until the next row of the same pod; before its first row the demand of a
pod is 0.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Final, cast

from croupier.core.market.terms import PodClass
from croupier.core.market.units import SECOND

COLUMNS: Final = ("time", "pod", "class", "demand")
MAX_SECONDS: Final = 7 * 24 * 3600
"""Maximum length in seconds; a replay simulates every second."""
MAX_CPU: Final = 10_000
"""Maximum CPU of one pod; a larger value is probably in the wrong unit."""


class TraceError(Exception):
    """The file is not a valid trace; the message has the line and the reason."""


@dataclass(frozen=True, slots=True)
class TraceWorkload:
    """Demand in millionths of a CPU, one number per second."""

    name: str
    book: PodClass
    demand: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    seconds: int
    workloads: tuple[TraceWorkload, ...]
    """Sorted by name."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    time: int
    pod: str
    book: PodClass
    demand: int


def read(text: str) -> Trace:
    books: dict[str, PodClass] = {}
    changes: dict[str, dict[int, int]] = {}
    for line, row in _rows(text):
        if books.setdefault(row.pod, row.book) != row.book:
            raise TraceError(
                f"line {line}: pod {row.pod} is {row.book} here and {books[row.pod]} before;"
                " a pod cannot change its class"
            )
        moments = changes.setdefault(row.pod, {})
        if moments and row.time <= max(moments):
            raise TraceError(
                f"line {line}: time {row.time} of pod {row.pod} must come after its last one, {max(moments)}"
            )
        moments[row.time] = row.demand
    if not changes:
        raise TraceError("the trace is empty: after the header it needs a line such as 0,web,latency,0.25")
    seconds = 1 + max(max(moments) for moments in changes.values())
    return Trace(
        seconds,
        tuple(TraceWorkload(pod, books[pod], _held(changes[pod], seconds)) for pod in sorted(changes)),
    )


def to_csv(rows: Iterable[TraceRow]) -> str:
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows((row.time, row.pod, row.book, f"{row.demand / SECOND:.3f}") for row in rows)
    return out.getvalue()


def _held(moments: Mapping[int, int], seconds: int) -> tuple[int, ...]:
    """The demand of every second."""
    demand, held = 0, []
    for second in range(seconds):
        demand = moments.get(second, demand)
        held.append(demand)
    return tuple(held)


def _rows(text: str) -> Iterator[tuple[int, TraceRow]]:
    table = csv.reader(io.StringIO(text, newline=""))
    try:
        header = next(table, [])
        if tuple(cell.strip() for cell in header) != COLUMNS:
            raise TraceError(f"line 1: it must be {','.join(COLUMNS)}")
        for cells in table:
            if cells:
                yield table.line_num, _row(table.line_num, [cell.strip() for cell in cells])
    except csv.Error as error:
        raise TraceError(f"line {table.line_num}: it is not valid CSV: {error}") from None


def _row(line: int, cells: list[str]) -> TraceRow:
    if len(cells) != len(COLUMNS):
        raise TraceError(f"line {line}: it has {len(cells)} columns instead of {len(COLUMNS)}")
    time, pod, book, demand = cells
    if not (time.isascii() and time.isdigit() and len(time) <= 9 and int(time) <= MAX_SECONDS):
        raise TraceError(f'line {line}: time "{time[:40]}" must be whole seconds from 0 to {MAX_SECONDS}')
    if not pod:
        raise TraceError(f"line {line}: the pod has no name")
    if book not in ("latency", "elastic"):
        raise TraceError(f'line {line}: class "{book[:40]}" must be latency or elastic')
    return TraceRow(int(time), pod, cast("PodClass", book), _cpu(line, demand))


def _cpu(line: int, written: str) -> int:
    try:
        cpu = Decimal(written)
    except InvalidOperation:
        cpu = Decimal("NaN")
    if not (cpu.is_finite() and 0 <= cpu <= MAX_CPU):
        raise TraceError(
            f'line {line}: demand "{written[:40]}" must be CPU from 0 to {MAX_CPU}, such as 0.25'
        )
    return int(cpu * SECOND)
