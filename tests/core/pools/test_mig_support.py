"""A pool whose MIG devices no card can have is known before a card is withdrawn for it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.cards import catalogue
from croupier.core.cards.catalogue import CardModel
from croupier.core.model import mig
from croupier.core.model.refusal import Refusal
from croupier.core.model.sharing import Sharing
from croupier.core.pools import assignment, mig_support
from croupier.core.pools.assignment import AssignableCard, AssignmentPool
from croupier.core.pools.mig_support import MigSupport, SelectedCards
from croupier.core.pools.selection import CardFilter, CardSelector, CardTraits, LabelMatch

H100 = MigSupport(known=True, profiles={"1g.10gb", "3g.40gb"}, fits={"1g.10gb": 7, "3g.40gb": 2})
T4 = MigSupport(known=True)
SMALL = Sharing("MIG", profile="1g.10gb")
LARGE = Sharing("MIG", profile="7g.141gb")
TOGETHER = Sharing("MIG", layout=(("1g.10gb", 4), ("3g.40gb", 1)))
TOO_MUCH = Sharing("MIG", layout=(("1g.10gb", 1), ("3g.40gb", 2)))

OBSTACLES = {
    "whole cards": (T4, Sharing("Exclusive"), ""),
    "a profile that the card has": (H100, SMALL, ""),
    "a layout that fits": (H100, TOGETHER, ""),
    "unknown profiles": (MigSupport(), LARGE, ""),
    "an unknown number of devices": (replace(H100, fits=None), TOO_MUCH, ""),
    "a card without MIG": (T4, SMALL, "the card does not support the MIG profiles 1g.10gb"),
    "an unknown profile": (H100, LARGE, "the card does not support the MIG profiles 7g.141gb"),
    "a layout that does not fit": (H100, TOO_MUCH, "MIG 1g.10gb:1,3g.40gb:2 does not fit on the card"),
}


@pytest.mark.parametrize(("card", "sharing", "why"), OBSTACLES.values(), ids=OBSTACLES)
def test_why_a_card_cannot_be_shared_so(card: MigSupport, sharing: Sharing, why: str) -> None:
    assert mig_support.obstacle(card, sharing, "the card") == why


END = "; change spec.allocation or the selectors of the pool"
IMPOSSIBLE = {
    "without cards": (SelectedCards(), ""),
    "if one card can": (SelectedCards(3, 2, ("T4 does not",)), ""),
    "if no card can": (
        SelectedCards(2, 2, ("T4 does not", "A30 does not")),
        f"none of the 2 cards that the pool selects can have its allocation: T4 does not, A30 does not{END}",
    ),
    "if the only card cannot": (
        SelectedCards(1, 1, ("T4 does not",)),
        f"the only card that the pool selects cannot have its allocation: T4 does not{END}",
    ),
    "of many models": (
        SelectedCards(9, 9, tuple("abcde")),
        f"none of the 9 cards that the pool selects can have its allocation: a, b, c and 2 more{END}",
    ),
}


@pytest.mark.parametrize(("cards", "why"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_pool_is_impossible(cards: SelectedCards, why: str) -> None:
    assert mig_support.impossible(cards) == why


def card(index: int, mig: MigSupport, **fields: str | bool) -> AssignableCard:
    product = "T4" if mig is T4 else "H100"
    return AssignableCard(CardTraits(f"card-{index}", index, product=product), mig=mig, **fields)  # type: ignore[arg-type]  # of one card


SELECTED = {
    "the cards that it selects": ([card(0, T4), card(1, H100)], SelectedCards(2, 1)),
    "no card that is retired": ([card(0, T4, excluded=True)], SelectedCards()),
    "its own card that it no longer selects": ([card(9, T4, pool="a")], SelectedCards(1, 1)),
    "no card that it does not select": ([card(9, T4)], SelectedCards()),
    "also cards of other pools": ([card(0, T4, pool="b")], SelectedCards(1, 1)),
}


@pytest.mark.parametrize(("cards", "found"), SELECTED.values(), ids=SELECTED)
def test_a_pool_counts(cards: list[AssignableCard], found: SelectedCards) -> None:
    low = CardSelector(CardFilter(indexes=((0, 7),)))
    selected = assignment.selected(AssignmentPool("a", sharing=SMALL, devices=low), cards, {})

    assert (selected.number, selected.impossible) == (found.number, found.impossible)
    assert selected.reasons == (("T4 does not support the MIG profiles 1g.10gb",) if found.impossible else ())


def test_a_pool_counts_no_card_on_a_node_that_it_does_not_select() -> None:
    pool = AssignmentPool("a", sharing=SMALL, nodes=LabelMatch({"zone": "a"}))
    cards = [card(0, H100), card(1, H100, pool="a")]

    assert assignment.selected(pool, cards, {"zone": "a"}).number == 2
    assert assignment.selected(pool, cards, {"zone": "b"}).number == 1, "its own card counts anywhere"


@given(st.lists(st.lists(st.sampled_from([H100, T4, MigSupport()]), max_size=3), max_size=4))
def test_a_pool_is_impossible_exactly_if_every_selected_card_is(nodes: list[list[MigSupport]]) -> None:
    pool = AssignmentPool("a", sharing=SMALL)
    found = mig_support.together(
        assignment.selected(pool, [card(index, mig) for index, mig in enumerate(node)], {}) for node in nodes
    )
    cards = [mig for node in nodes for mig in node]

    assert bool(mig_support.impossible(found)) == (bool(cards) and all(mig is T4 for mig in cards))


MODELS = [model for model in catalogue.MODELS if model.kinds]


@given(st.sampled_from(MODELS), st.data())
def test_no_layout_that_a_model_can_have_is_an_obstacle(model: CardModel, data: st.DataObject) -> None:
    names = st.sampled_from([kind.name for kind in model.kinds])
    wanted = mig.layout_of(data.draw(st.lists(names, min_size=1, max_size=7)))
    fits = {kind.name: mig.max_devices(model.kinds, kind.name) for kind in model.kinds}
    support = MigSupport(known=True, profiles=fits.keys(), fits=fits)

    if not isinstance(mig.place(model.kinds, wanted), Refusal):
        assert mig_support.obstacle(support, Sharing("MIG", layout=wanted), "the card") == ""
