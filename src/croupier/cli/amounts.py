"""Resource amounts and tables for the terminal. Amounts are rounded here; JSON output is exact."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from croupier.cli import tables

if TYPE_CHECKING:
    from croupier.core.availability import NodeAmounts, ResourceAmounts
    from croupier.core.quantity import Quantity

UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
NANO: Final = 10**9

_BYTES: Final = re.compile(r"memory|ephemeral-storage|hugepages-.*")
FIRST: Final = ("cpu", "memory")
_LAST: Final = ("ephemeral-storage", "pods")


def rank(resource: str) -> tuple[int, list[tuple[int, str]]]:
    """Sort key: cpu and memory, then devices by name, then all other resources."""
    if resource in FIRST:
        return FIRST.index(resource), []
    if is_device(resource):
        return len(FIRST), natural(resource)
    return len(FIRST) + 1 + (_LAST.index(resource) + 1 if resource in _LAST else 0), natural(resource)


def is_device(resource: str) -> bool:
    """Whether this is an extended resource: its name has a domain."""
    return "/" in resource


def natural(name: str) -> list[tuple[int, str]]:
    """Sort key that puts node-2 before node-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def text(resource: str, amount: "Quantity") -> str:
    """`51.5`, `4`, `503.2Gi`; rounded towards zero."""
    if amount.nanos < 0:
        return f"-{text(resource, -amount)}"
    if not _BYTES.fullmatch(resource):
        return _decimal(amount.nanos * 1000 // NANO, 1000)
    power = max((power for power in range(len(UNITS)) if amount.nanos >= 1024**power * NANO), default=0)
    tenths = amount.nanos * 10 // (1024**power * NANO)
    return f"{_decimal(tenths, 10)}{UNITS[power]}"


def _decimal(parts: int, of: int) -> str:
    """Decimal text of `parts` / `of`, where `of` is a power of ten: 1500 / 1000 is 1.5."""
    whole, rest = divmod(parts, of)
    digits = f"{rest:0{len(str(of)) - 1}d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def short_cells(resource: str, numbers: "ResourceAmounts") -> tuple[str, str, str]:
    shown = (numbers.allocatable, numbers.allocated, numbers.available)
    return (text(resource, shown[0]), text(resource, shown[1]), text(resource, shown[2]))


def wide_cells(resource: str, numbers: "ResourceAmounts") -> tuple[str, ...]:
    before = (text(resource, numbers.capacity), text(resource, numbers.reserved))
    return (*before, *short_cells(resource, numbers))


def usage(numbers: "ResourceAmounts") -> str:
    """A bar of what is not available any more, with its percentage."""
    total = numbers.allocatable.nanos
    used = total - numbers.available.nanos
    percent = f"{used * 100 // total:>3} %" if total else "    -"
    return f"{tables.bar(used, total)} {percent}"


def matrix(
    nodes: Sequence[tuple[str, "NodeAmounts"]], resources: Sequence[str], width: int | None = None
) -> list[str]:
    """One line per node, one column per resource, three numbers per cell; `-` if the node has none.

    Columns beyond `width` follow in another table below, with the nodes again.
    """
    first = ["NODE", *(name for name, _ in nodes)]
    columns = [[name, *_column(name, [account.get(name) for _, account in nodes])] for name in resources]
    blocks: list[list[list[str]]] = [[first]]
    for column in columns:
        if len(blocks[-1]) > 1 and width is not None and _width([*blocks[-1], column]) > width:
            blocks.append([first])
        blocks[-1].append(column)
    lines = [line for block in blocks for line in ("", *tables.aligned(list(zip(*block, strict=True))))]
    return lines[1:]


def _width(columns: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) for column in columns) + len(tables.GAP) * (len(columns) - 1)


def _column(resource: str, numbers: Sequence["ResourceAmounts | None"]) -> list[str]:
    """Cells such as `4 / 3 / 1` with aligned slashes."""
    cells = [
        short_cells(resource, amounts) if amounts is not None and any(amounts) else None
        for amounts in numbers
    ]
    widths = [max((len(cell[part]) for cell in cells if cell), default=0) for part in range(3)]
    layout = " / ".join(f"{{:>{width}}}" for width in widths)
    return [layout.format(*cell) if cell else "-" for cell in cells]
