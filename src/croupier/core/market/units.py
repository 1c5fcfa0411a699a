"""What the market counts in: quanta of 10m CPU and microseconds, both whole numbers.

The kubelet and systemd round a CPU quota to 10m, so a finer limit could never be
reported as applied. Demand is counted finer, in millionths of a CPU: that is what a
microsecond of CPU time in a second of the clock comes to.
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
    """In whole quanta, the rest cut off: what a cap allows."""
    return amount.nanos // quantity.millis(_MILLIS).nanos


def at_least(amount: Quantity) -> int:
    """In whole quanta, a started one counted in full: what a floor needs."""
    return -(-amount.nanos // quantity.millis(_MILLIS).nanos)


def covering(micros: int) -> int:
    """Quanta that cover so many millionths of a CPU."""
    return -(-micros // MICROS)


def written(quanta: int) -> Quantity:
    """As it goes into `desiredCPULimit`."""
    return quantity.millis(quanta * _MILLIS)


def text(quanta: int) -> str:
    """As a person reads it: `500m`, `1`, `2500m`."""
    return str(written(quanta))
