"""Every grant round-trips through the allocation annotation, and invalid annotations are refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.api.mps import allocation
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import CardGrant, CardMode, Grant, LedgerCard, MigSlot

MODES: list[CardMode] = ["Percent", "Exclusive", "MIG", "TimeSlice"]
IDS = st.lists(st.integers(0, 31), unique=True, max_size=32)


@st.composite
def granted(draw: st.DrawFn) -> tuple[Grant, Ledger]:
    """A node with cards of every mode, and a grant on it."""
    cards, parts = [], []
    for index in draw(IDS):
        mode = draw(st.sampled_from(MODES))
        name = f"node-1-0000-{index:02x}-00-0"
        slots = tuple(MigSlot(f"s{n}", "1g.10gb", n, 1) for n in range(7)) if mode == "MIG" else ()
        cards.append(LedgerCard(name, index, mode, slots=slots))
        if mode == "MIG":
            some = draw(st.lists(st.sampled_from([slot.id for slot in slots]), unique=True, min_size=1))
            parts.append(CardGrant(name, slots=tuple(some)))
        else:
            parts.append(CardGrant(name, draw(st.integers(1, 64 if mode == "TimeSlice" else 100))))
    return tuple(parts), Ledger("node-1", tuple(cards))


@given(granted())
def test_a_grant_round_trips(given_to):
    grant, ledger = given_to

    written = allocation.encode(grant, ledger)

    assert allocation.decode(written) == grant
    assert len(written) <= allocation.MAX_LENGTH


def test_the_encoded_form():
    cards = (
        LedgerCard("a", 0),
        LedgerCard("b", 1, "TimeSlice", capacity=8),
        LedgerCard("c", 2, "MIG", slots=(MigSlot("s0", "1g.10gb", 0, 1), MigSlot("s1", "1g.10gb", 1, 1))),
    )
    grant = (CardGrant("a", 50), CardGrant("b", 3), CardGrant("c", slots=("s0", "s1")))

    assert json.loads(allocation.encode(grant, Ledger("node-1", cards))) == [
        {"card": "a", "index": 0, "percent": 50},
        {"card": "b", "index": 1, "slices": 3},
        {"card": "c", "index": 2, "slots": ["s0", "s1"]},
    ]


def test_a_card_that_the_node_does_not_have_is_an_error():
    with pytest.raises(ValueError, match="node node-1 has no card x"):
        allocation.encode((CardGrant("x", 50),), Ledger("node-1"))


def entry(**fields: Any) -> dict[str, Any]:
    return {"card": "a", "index": 0, "percent": 50} | fields


HOSTILE = {
    "nothing": "",
    "a word": "all",
    "not JSON": '[{"card": "a",]',
    "no list": json.dumps(entry()),
    "null": "null",
    "a list of names": '["a"]',
    "no card": json.dumps([{"index": 0, "percent": 50}]),
    "no index": json.dumps([{"card": "a", "percent": 50}]),
    "an empty name": json.dumps([entry(card="")]),
    "a name without end": json.dumps([entry(card="a" * 254)]),
    "a number for a name": json.dumps([entry(card=7)]),
    "percent as text": json.dumps([entry(percent="50")]),
    "percent as truth": json.dumps([entry(percent=True)]),
    "a fraction": json.dumps([entry(percent=0.5)]),
    "no percent": json.dumps([entry(percent=0)]),
    "more than the card": json.dumps([entry(percent=101)]),
    "far more than the card": f'[{{"card": "a", "index": 0, "percent": {"9" * 400}}}]',
    "less than nothing": json.dumps([entry(percent=-50)]),
    "not a number": '[{"card": "a", "index": 0, "percent": NaN}]',
    "too many slices": json.dumps([{"card": "a", "index": 0, "slices": 65}]),
    "percent and slices": json.dumps([entry(slices=1)]),
    "percent and slots": json.dumps([entry(slots=["s0"])]),
    "neither": json.dumps([{"card": "a", "index": 0}]),
    "no slots": json.dumps([{"card": "a", "index": 0, "slots": []}]),
    "a slot twice": json.dumps([{"card": "a", "index": 0, "slots": ["s0", "s0"]}]),
    "nine slots": json.dumps([{"card": "a", "index": 0, "slots": [f"s{n}" for n in range(9)]}]),
    "a card twice": json.dumps([entry(), entry(percent=10)]),
    "33 cards": json.dumps([entry(card=f"c{n}") for n in range(33)]),
    "more than fits": json.dumps([entry(card="a")]) + " " * allocation.MAX_LENGTH,
    "deep nesting": '[{"x":' + "[" * 20_000,
    "half a character": "\ud800",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_invalid_annotations_are_refused_with_a_message(text):
    with pytest.raises(ValueError, match=r"^annotation gpu\.mps\.io/allocation ") as refused:
        allocation.decode(text)

    assert len(str(refused.value)) < 500


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.sampled_from(["card", "index", "percent", "slices", "slots"]) | st.text(), inner)
    ),
    max_leaves=8,
)


@given(st.text() | JSON.map(json.dumps) | st.lists(JSON).map(json.dumps))
def test_any_text_is_decoded_or_raises_value_error(text):
    said = ""
    try:
        grant = allocation.decode(text)
    except ValueError as refused:
        grant, said = (), str(refused)

    assert said == "" or said.startswith(f"annotation {allocation.ALLOCATION} ")
    assert all(1 <= part.share <= 100 or part.slots for part in grant)


def test_fields_of_a_later_version_are_ignored():
    assert allocation.decode(json.dumps([entry(memoryMiB=4096)])) == (CardGrant("a", 50),)
