"""Amounts of resources as a person reads them, and tables of them. Programs read JSON, which is exact."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from croupier.cli import tables

if TYPE_CHECKING:
    from croupier.core.availability import Account, Three
    from croupier.core.quantity import Quantity

UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
NANO: Final = 10**9
GAP: Final = "   "

_BYTES: Final = re.compile(r"memory|ephemeral-storage|hugepages-.*")
FIRST: Final = ("cpu", "memory")
_LAST: Final = ("ephemeral-storage", "pods")


def rank(resource: str) -> tuple[int, list[tuple[int, str]]]:
    """cpu and memory first, then devices by name, then what few look for."""
    if resource in FIRST:
        return FIRST.index(resource), []
    if is_device(resource):
        return len(FIRST), natural(resource)
    return len(FIRST) + 1 + (_LAST.index(resource) + 1 if resource in _LAST else 0), natural(resource)


def is_device(resource: str) -> bool:
    """An extended resource, as Kubernetes calls it: its name has a domain."""
    return "/" in resource


def natural(name: str) -> list[tuple[int, str]]:
    """A key to sort by: node-2 comes before node-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]


def text(resource: str, amount: "Quantity") -> str:
    """`51.5`, `4`, `503.2Gi`; rounded towards zero where it is rounded."""
    if amount.nanos < 0:
        return f"-{text(resource, -amount)}"
    if not _BYTES.fullmatch(resource):
        return _decimal(amount.nanos * 1000 // NANO, 1000)
    power = max((power for power in range(len(UNITS)) if amount.nanos >= 1024**power * NANO), default=0)
    tenths = amount.nanos * 10 // (1024**power * NANO)
    return f"{_decimal(tenths, 10)}{UNITS[power]}"


def _decimal(parts: int, of: int) -> str:
    """`parts` of `of` in one: 1500 of 1000 is 1.5."""
    whole, rest = divmod(parts, of)
    digits = f"{rest:0{len(str(of)) - 1}d}".rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


def three(resource: str, numbers: "Three") -> tuple[str, str, str]:
    shown = (numbers.allocatable, numbers.allocated, numbers.available)
    return (text(resource, shown[0]), text(resource, shown[1]), text(resource, shown[2]))


def five(resource: str, numbers: "Three") -> tuple[str, ...]:
    before = (text(resource, numbers.capacity), text(resource, numbers.reserved))
    return (*before, *three(resource, numbers))


def taken(numbers: "Three") -> str:
    """A bar of what is taken, and how much that is."""
    used, total = numbers.allocated.nanos, numbers.allocatable.nanos
    percent = f"{used * 100 // total:>3} %" if total else "    -"
    return f"{tables.bar(used, total)} {percent}"


def rows(headers: Sequence[str], cells: Iterable[Sequence[str]], *, left: int = 1) -> list[str]:
    """Aligned lines: the first `left` columns and the last by their beginning, numbers by their end."""
    table = [[header.upper() for header in headers], *cells]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    sides = ["<" if index < left or index == len(widths) - 1 else ">" for index in range(len(widths))]
    layout = GAP.join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return [layout.format(*row).rstrip() for row in table]


def matrix(nodes: Sequence[tuple[str, "Account"]], resources: Sequence[str]) -> list[str]:
    """A line a node, a column a resource, the three numbers in each cell; `-` where a node has none."""
    columns = [
        ["NODE", *(name for name, _ in nodes)],
        *([one, *_column(one, [account.get(one) for _, account in nodes])] for one in resources),
    ]
    widths = [max(map(len, column)) for column in columns]
    layout = GAP.join(f"{{:<{width}}}" for width in widths)
    return [layout.format(*row).rstrip() for row in zip(*columns, strict=True)]


def _column(resource: str, numbers: Sequence["Three | None"]) -> list[str]:
    """`4 / 3 / 1`, the slashes below each other."""
    written = [three(resource, one) if one is not None and any(one) else None for one in numbers]
    widths = [max((len(one[part]) for one in written if one), default=0) for part in range(3)]
    layout = " / ".join(f"{{:>{width}}}" for width in widths)
    return [layout.format(*one) if one else "-" for one in written]
