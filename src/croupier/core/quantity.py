"""Exact Kubernetes quantities.

`"1"` and `"1000m"` are equal, which floats do not guarantee. A quantity is therefore a
whole number of nanos (the smallest unit of Kubernetes) together with the style it was
written in, so that it is formatted as the API server would.
"""

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, total_ordering
from typing import Final


class Style(Enum):
    """The notation of a quantity; it does not affect the value."""

    DECIMAL = "decimal"  # 100m, 20k
    BINARY = "binary"  # 1536Mi
    EXPONENT = "exponent"  # 1e3


NANO: Final = 10**9
MAX_NANOS: Final = (2**63 - 1) * NANO
"""Larger binary quantities (Ki, Mi, ...) are capped at this value, as in Kubernetes."""

_DECIMAL_SUFFIXES: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY_SUFFIXES: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_SUFFIX_OF_EXPONENT: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_SUFFIX_OF_POWER: Final = {power: suffix for suffix, power in _BINARY_SUFFIXES.items()} | {0: ""}

_MAX_LENGTH: Final = 100  # characters; the longest useful quantity has fewer than 30
_PATTERN: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>[0-9]+)(?:\.(?P<fraction>[0-9]*))?|\.(?P<only>[0-9]+))"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)


class InvalidQuantityError(ValueError):
    """The text is not a quantity; the message describes the format."""


@total_ordering
@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact amount. Equal amounts compare equal in every notation."""

    nanos: int
    style: Style = field(default=Style.DECIMAL, compare=False)

    def __str__(self) -> str:
        return text(self)

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos + other.nanos, self.style if self.nanos else other.style)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, self.style if self.nanos else other.style)

    def __mul__(self, times: int) -> "Quantity":
        return Quantity(self.nanos * times, self.style)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nanos, self.style)

    def __bool__(self) -> bool:
        return self.nanos != 0

    @property
    def whole(self) -> int:
        """In units, rounded up, as Kubernetes counts devices and bytes."""
        return _divide_up(self.nanos, NANO)

    @property
    def millis(self) -> int:
        """In thousandths, rounded up, as Kubernetes counts CPU."""
        return _divide_up(self.nanos, NANO // 1000)

    def is_multiple_of(self, step: "Quantity") -> bool:
        return self.nanos % step.nanos == 0


ZERO: Final = Quantity(0)


def millis(count: int) -> Quantity:
    return Quantity(count * (NANO // 1000))


@lru_cache(maxsize=4096)
def parse(written: str) -> Quantity:
    """Parse `100m`, `1.5Gi`, `1e3`, `20k`; fractions of a nano are rounded away from zero."""
    match = _PATTERN.fullmatch(written) if len(written) <= _MAX_LENGTH else None
    if match is None or int(match["exponent"] or 0) > _MAX_LENGTH:
        raise InvalidQuantityError(
            f"{written[:_MAX_LENGTH]!r} is not a quantity: write a number with an optional suffix,"
            " such as 100m, 2.5, 20k, 1.5Gi or 1e3"
        )
    digits = (match["whole"] or "") + (match["fraction"] or match["only"] or "")
    decimals = len(match["fraction"] or match["only"] or "")
    style, exponent, power = _scale(match["suffix"], match["exponent"])

    mantissa = int(digits) * 1024**power
    nanos = _shift(mantissa, exponent + 9 - decimals)
    nanos = min(nanos, MAX_NANOS) if style is Style.BINARY else nanos
    return Quantity(-nanos if match["sign"] == "-" else nanos, style)


def text(quantity: Quantity) -> str:
    """The canonical form: no fraction, the largest suffix that keeps the number whole."""
    if not quantity.nanos:
        return "0"
    if quantity.style is Style.BINARY and quantity.nanos % NANO == 0 and abs(quantity.nanos) >= 1024 * NANO:
        number, power = _largest_factor(quantity.nanos // NANO, factor=1024, most=6)
        return f"{number}{_SUFFIX_OF_POWER[power]}"
    most = _MAX_LENGTH if quantity.style is Style.EXPONENT else 9  # suffixes end at E
    number, thousands = _largest_factor(quantity.nanos, factor=1000, most=most)
    exponent = 3 * thousands - 9
    if quantity.style is Style.EXPONENT:
        return f"{number}e{exponent}" if exponent else str(number)
    return f"{number}{_SUFFIX_OF_EXPONENT[exponent]}"


def _scale(suffix: str | None, exponent: str | None) -> tuple[Style, int, int]:
    """The style, the power of ten and the power of 1024 of a suffix."""
    if exponent is not None:
        return Style.EXPONENT, int(exponent), 0
    if suffix in _BINARY_SUFFIXES:
        return Style.BINARY, 0, _BINARY_SUFFIXES[suffix]
    return Style.DECIMAL, _DECIMAL_SUFFIXES[suffix or ""], 0


def _shift(mantissa: int, exponent: int) -> int:
    """mantissa x 10^exponent, rounded up; very small exponents are bounded to limit memory."""
    if exponent >= 0:
        return mantissa * int(10**exponent)
    return _divide_up(mantissa, int(10 ** min(-exponent, 2 * _MAX_LENGTH)))


def _divide_up(dividend: int, divisor: int) -> int:
    """Division rounded up: 1001m of CPU is 2 units."""
    return -(-dividend // divisor)


def _largest_factor(number: int, *, factor: int, most: int) -> tuple[int, int]:
    """Divide the number by `factor` as long as it is divisible, at most `most` times."""
    times = 0
    while times < most and number % factor == 0:
        number //= factor
        times += 1
    return number, times
