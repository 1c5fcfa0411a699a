"""Any text is a quantity or not, as an independent reading of the Kubernetes grammar says."""

import re
from fractions import Fraction

from hypothesis import strategies as st

from croupier.core import quantity
from croupier.core.quantity import MAX_NANOS, NANO, InvalidQuantityError, Style
from tests.fuzz import inputs

SUFFIXES = {"": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)}
SUFFIXES |= {suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)}
SUFFIXES |= {f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)}

PIECES = st.sampled_from(
    [*SUFFIXES, "e3", "E-9", "e+2", "e", ".", "+", "-", "0", "00", "1", "15", "999", " ", "٣", "i"]
)
TEXTS = (
    st.lists(PIECES, max_size=6).map("".join)
    | st.from_regex(r"[+-]?[0-9]{0,30}\.?[0-9]{0,12}([a-zA-Z]{0,2})")
    | inputs.WORDS
)


def reference(text: str) -> Fraction | None:
    """The value of the text by splitting it: a number, then a suffix or a decimal exponent."""
    found = re.match(r"[+-]?[0-9]*\.?[0-9]*", text, re.ASCII)
    number, rest = (found[0], text[found.end() :]) if found else ("", text)
    if not any(digit in number for digit in "0123456789"):
        return None
    if rest in SUFFIXES:
        return Fraction(number.rstrip(".").replace("+.", "+0.").replace("-.", "-0.")) * SUFFIXES[rest]
    if re.fullmatch(r"[eE][+-]?[0-9]+", rest, re.ASCII):
        return _scaled(Fraction(number.rstrip(".")), int(rest[1:]))
    return None


def _scaled(number: Fraction, exponent: int) -> Fraction | None:
    """Exponents above 100 are refused; below -300, a value that is not 0 is less than a nano anyway."""
    return None if exponent > 100 else number * Fraction(10) ** max(exponent, -300)


def rounded(value: Fraction) -> int:
    """In nanos, away from zero."""
    nanos = -(-abs(value) * NANO // 1)
    return int(nanos) if value >= 0 else -int(nanos)


def test_a_text_has_the_value_of_the_reference(fuzz):
    def check(text: str) -> None:
        expected = reference(text)
        try:
            parsed = quantity.parse(text)
        except InvalidQuantityError as refusal:
            inputs.assert_is_sentence(str(refusal))
            assert expected is None or len(text) > 100
            return
        assert expected is not None
        limit = MAX_NANOS if parsed.style is Style.BINARY else abs(rounded(expected))
        assert abs(parsed.nanos) == min(abs(rounded(expected)), limit)
        assert quantity.parse(str(parsed)) == parsed

    fuzz(TEXTS, check)
