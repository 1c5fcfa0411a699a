"""Tables at the width of a terminal: columns are left out in a fixed order, and no value is folded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.cli import amounts, audit, cards, ledger, pools, reservations, tables
from croupier.core.availability import ResourceAmounts
from croupier.core.quantity import parse

TABLE = [
    ["card", "node", "product", "health"],
    ["node-1-0000-65-00-0", "node-1", "NVIDIA H100 80GB HBM3", "ok"],
    ["node-1-0000-ca-00-0", "node-1", "NVIDIA A30", "the card fell off the bus and needs a reset"],
]
OPTIONAL = ("product", "node")

SHOWN = {
    "wide enough": (120, ["card", "node", "product", "health"]),
    "room for the shortest free text": (75, ["card", "node", "product", "health"]),
    "one column less": (74, ["card", "node", "health"]),
    "two columns less": (50, ["card", "health"]),
    "nothing left to leave out": (10, ["card", "health"]),
}


@pytest.mark.parametrize(("width", "headers"), SHOWN.values(), ids=SHOWN)
def test_columns_are_left_out_by_width(width, headers):
    fitting = tables.fit(TABLE, width, optional=OPTIONAL, text="health")

    assert fitting[0] == headers
    assert fitting[1][0] == "node-1-0000-65-00-0", "no other value is shortened"


def test_the_free_text_is_shortened_to_the_width():
    cut = tables.fit(TABLE, 80, optional=OPTIONAL, text="health")[2][-1]
    last = tables.fit(TABLE, 20, optional=OPTIONAL, text="health")[2][-1]

    assert cut == "the card fell off the bu…"
    assert last == "the card fell off t…"


def test_only_free_text_is_shortened():
    assert tables.fit(TABLE, 30, optional=OPTIONAL)[2][-1] == TABLE[2][-1]


WORDS = st.text("abc", max_size=30)


@given(st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS), min_size=1, max_size=4), st.integers(20, 120))
def test_the_lines_fit_or_nothing_is_left_to_leave_out(rows, width):
    fitting = tables.fit([TABLE[0], *rows], width, optional=OPTIONAL, text="health")
    lines = tables.lines(fitting[0], fitting[1:])

    assert max(map(len, lines)) <= width or list(fitting[0]) == ["card", "health"]


LISTINGS = {
    "cards": (cards.HEADERS, cards.WIDE, cards.OPTIONAL),
    "pools": (pools.HEADERS, (), pools.OPTIONAL),
    "reservations": (reservations.HEADERS, reservations.WIDE, reservations.OPTIONAL),
    "ledger": (ledger.HEADERS, (), ledger.OPTIONAL),
    "audit": (audit.HEADERS, (), audit.OPTIONAL),
}


@pytest.mark.parametrize(("headers", "wide", "optional"), LISTINGS.values(), ids=LISTINGS)
def test_optional_columns_are_columns_of_the_table(headers, wide, optional):
    assert set(optional) <= set(headers) - set(wide)
    assert headers[0] not in optional


def test_resources_that_do_not_fit_follow_below():
    four = ResourceAmounts(
        capacity=parse("4"), allocatable=parse("4"), allocated=parse("1"), available=parse("3")
    )
    resources = ["nvidia.com/gpu", "gpu.mps.io/percent", "nvidia.com/mig-1g.10gb"]
    nodes = [("node-1", dict.fromkeys(resources, four))]

    whole = amounts.matrix(nodes, resources)
    split = amounts.matrix(nodes, resources, width=50)

    assert len(whole) == 2
    assert split == [
        "NODE     nvidia.com/gpu   gpu.mps.io/percent",
        "node-1   4 / 1 / 3        4 / 1 / 3",
        "",
        "NODE     nvidia.com/mig-1g.10gb",
        "node-1   4 / 1 / 3",
    ]
