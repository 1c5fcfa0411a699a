"""Results of the benchmarks: a table, and JSON for comparisons over time."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.table import Table

OURS = "croupier"


class Figure(msgspec.Struct, frozen=True):
    """One measurement; `values` by subject, Croupier under `croupier`."""

    bench: str
    what: str
    unit: str
    values: dict[str, float]

    def ratio(self, who: str) -> float | None:
        """The value of `who` divided by that of Croupier."""
        ours, theirs = self.values.get(OURS), self.values.get(who)
        return theirs / ours if ours and theirs is not None else None


class Report(msgspec.Struct, frozen=True):
    at: datetime
    quick: bool
    machine: dict[str, str]
    figures: Sequence[Figure]


def report(figures: Sequence[Figure], *, quick: bool) -> Report:
    machine = {
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    return Report(datetime.now(UTC), quick, machine, figures)


def write(made: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=2))


def table(made: Report) -> Table:
    """One row per measurement: Croupier, and the others with their ratio to it."""
    result = Table(title="Benchmarks of Croupier" + (" (quick: not meaningful)" if made.quick else ""))
    result.add_column("measurement")
    result.add_column(OURS, justify="right", no_wrap=True)
    result.add_column("others")
    bench = ""
    for figure in made.figures:
        if bench not in ("", figure.bench):
            result.add_section()
        bench = figure.bench
        others = (f"{who} {_cell(figure, who)}" for who in figure.values if who != OURS)
        result.add_row(figure.what, _cell(figure, OURS), "\n".join(others))
    return result


def _cell(figure: Figure, who: str) -> str:
    value = figure.values.get(who)
    if value is None:
        return ""
    text = f"{_round(value)} {figure.unit}"
    ratio = figure.ratio(who) if who != OURS else None
    return f"{text} (×{_round(ratio)})" if ratio is not None else text


def _round(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
