"""The name of a card follows from its PCI address, and is a valid object name."""

import re

import pytest
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


def test_a_name_too_long_is_refused_with_the_numbers():
    with pytest.raises(ValueError, match=r"263 characters; Kubernetes allows 253"):
        card_name.inventory_id("n" * 250, "0000:65:00.0")
