"""The units of the market: quanta of 10m CPU and microseconds, both integers.

The kubelet and systemd round a CPU quota to 10m, so a finer limit could never be
reported as applied. Demand is measured in millionths of a CPU: one microsecond of CPU
time per second.
"""

from typing import Final

from croupier.core import quantity
from croupier.core.quantity import Quantity

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
CPU: Final = 100
"""Quanta in a CPU."""
MICROS: Final = 10_000
"""Millionths of a CPU in a quantum."""

_MILLIS: Final = 10


def at_most(amount: Quantity) -> int:
    """In whole quanta, rounded down: for a cap."""
    return amount.nanos // quantity.millis(_MILLIS).nanos


def at_least(amount: Quantity) -> int:
    """In whole quanta, rounded up: for a floor."""
    return -(-amount.nanos // quantity.millis(_MILLIS).nanos)


def covering_quanta(micros: int) -> int:
    """Quanta that cover this many millionths of a CPU."""
    return -(-micros // MICROS)


def to_quantity(quanta: int) -> Quantity:
    """The quantity for `desiredCPULimit`."""
    return quantity.millis(quanta * _MILLIS)


def text(quanta: int) -> str:
    """`500m`, `1`, `2500m`."""
    return str(to_quantity(quanta))
