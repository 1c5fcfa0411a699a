"""The name of a card follows from its PCI address, and is a valid object name."""

import re

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.model import card_name

NODES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?", fullmatch=True)
PLACES = st.tuples(st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 0x1F), st.integers(0, 7))


def address(place: tuple[int, int, int, int], style: str = "{:04x}:{:02x}:{:02x}.{:x}") -> str:
    return style.format(*place)


def test_the_name_is_node_and_address():
    assert card_name.inventory_id("node-1", "0000:65:00.0") == "node-1-0000-65-00-0"


@given(NODES, PLACES)
def test_every_name_is_valid_in_kubernetes(node, place):
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", card_name.inventory_id(node, address(place)))


@given(NODES, PLACES)
def test_the_case_of_the_address_does_not_matter(node, place):
    loud = address(place, "{:04X}:{:02X}:{:02X}.{:X}")
    assert card_name.inventory_id(node, loud) == card_name.inventory_id(node, address(place))


@given(NODES, PLACES, PLACES)
def test_different_addresses_have_different_names(node, one, other):
    same = card_name.inventory_id(node, address(one)) == card_name.inventory_id(node, address(other))
    assert same == (one == other)


LONG_NODES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{170,250}[a-z0-9])", fullmatch=True)


@given(LONG_NODES, PLACES)
def test_the_name_of_a_long_node_is_valid_and_ends_as_usual(node, place):
    name, numbered = card_name.inventory_id(node, address(place)), card_name.indexed_id(node, 3)

    assert max(len(name), len(numbered)) <= card_name.NAME_LIMIT
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name)
    assert name.endswith(address(place, "-{:04x}-{:02x}-{:02x}-{:x}"))
    assert name.startswith(card_name.prefixes(node))
    assert card_name.is_indexed(numbered)
    assert not card_name.is_indexed(name)


def test_only_a_name_that_does_not_fit_is_shortened():
    fits, too_long = "n" * 240, "n" * 241

    assert card_name.inventory_id(fits, "0000:65:00.0") == f"{fits}-0000-65-00-0"
    assert card_name.inventory_id(too_long, "0000:65:00.0") == (f"{'n' * 171}-a3938a15ac27883d-0000-65-00-0")


def test_long_nodes_that_differ_in_the_last_character_have_different_cards():
    one, other = (card_name.indexed_id("n" * 248 + end, 0) for end in "ab")

    assert one != other


def test_an_address_of_any_length_makes_a_name_that_fits():
    assert len(card_name.inventory_id("node-1", "f" * 400)) <= card_name.NAME_LIMIT
