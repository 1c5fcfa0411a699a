"""Quantities are exact and are formatted like in the API server."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from croupier.core import quantity
from croupier.core.quantity import MAX_NANOS, NANO, InvalidQuantityError, Quantity, Style

CANONICAL = {
    "a thousand milli are one": ("1000m", "1"),
    "half a CPU": ("0.5", "500m"),
    "a fraction of a milli": ("0.0005", "500u"),
    "one and a half Gi": ("1.5Gi", "1536Mi"),
    "binary below 1024 turns decimal": ("0.5Ki", "512"),
    "binary with a fraction of a byte turns decimal": ("1025.3Ki", "1049907200m"),
    "an exponent stays one": ("1e3", "1e3"),
    "exponents are multiples of three": ("1E4", "10e3"),
    "a small exponent disappears": ("1e2", "100"),
    "twenty thousand": ("20k", "20k"),
    "the suffix grows": ("20000", "20k"),
    "E alone is exa": ("1E", "1E"),
    "nano": ("7n", "7n"),
    "finer than a nano is rounded up": ("0.1n", "1n"),
    "negative": ("-1.5", "-1500m"),
    "an explicit plus": ("+2", "2"),
    "a leading dot": (".5", "500m"),
    "a trailing dot": ("5.", "5"),
    "zero in any style": ("0Ki", "0"),
    "too many bytes are capped": ("99Ei", "9223372036854775807"),
    "anything else may be larger": ("9223372036854775808", "9223372036854775808"),
    "much larger": ("1e30", "1e30"),
    "very small is a nano": ("1e-99999999", "1e-9"),
}


@pytest.mark.parametrize(("written", "canonical"), CANONICAL.values(), ids=CANONICAL)
def test_canonical_form(written, canonical):
    assert str(quantity.parse(written)) == canonical


@pytest.mark.parametrize(
    "written",
    ["", "m", "1.2.3", "1 Gi", "1gi", "1Kib", "--1", "1e", "0x10", "NaN", "١", "1\n", "9" * 101, "1e101"],
)
def test_invalid_quantities(written):
    with pytest.raises(InvalidQuantityError, match="is not a quantity: write a number"):
        quantity.parse(written)


def test_equal_amounts_compare_equal_in_every_notation():
    assert (
        quantity.parse("1") == quantity.parse("1000m") == quantity.parse("1e0") == quantity.parse("1000000u")
    )
    assert hash(quantity.parse("1Ki")) == hash(quantity.parse("1024"))


def test_counting_rounds_up():
    assert (quantity.parse("1001m").whole, quantity.parse("100u").millis) == (2, 1)


def test_steps_of_ten_milli():
    step = quantity.millis(10)

    assert [quantity.parse(cpu).is_multiple_of(step) for cpu in ("2.5", "10m", "0.015", "5m")] == [
        True,
        True,
        False,
        False,
    ]


amounts = st.builds(Quantity, st.integers(-MAX_NANOS, MAX_NANOS), st.sampled_from(Style))
decimals = st.from_regex(r"[0-9]{1,12}(\.[0-9]{0,9})?", fullmatch=True)


@given(amounts)
def test_formatting_and_parsing_round_trip(amount):
    assert quantity.parse(str(amount)) == amount


@given(amounts)
@example(Quantity(15_625_000 * NANO, Style.BINARY))
def test_the_canonical_form_is_stable(amount):
    """Bytes that are no multiple of 1024 have no suffix, and read as a decimal: 15625000 is 15625k."""
    again = quantity.parse(str(amount))

    assert str(again) == str(amount) or again.style is not amount.style
    assert str(quantity.parse(str(again))) == str(again)


@given(decimals, st.sampled_from(["n", "u", "m", "", "k", "M", "Ki", "Mi"]))
def test_the_value_is_the_number_times_its_suffix(number, suffix):
    scale = {
        "n": Fraction(1, NANO),
        "u": Fraction(1, 10**6),
        "m": Fraction(1, 1000),
        "": 1,
        "k": 1000,
        "M": 10**6,
    }
    exact = Fraction(number) * scale.get(suffix, 1024 ** (1 + "KM".find(suffix[:1]))) * NANO

    assert 0 <= quantity.parse(number + suffix).nanos - exact < 1


@given(amounts, amounts)
def test_order_and_sum_are_those_of_the_numbers(amount, other):
    assert (amount < other) == (amount.nanos < other.nanos)
    assert (amount + other) - other == amount
    assert amount + -amount == quantity.ZERO


@given(amounts, st.integers(0, 64))
def test_times_is_repeated_addition(amount, times):
    assert amount * times == sum((amount for _ in range(times)), quantity.ZERO)
