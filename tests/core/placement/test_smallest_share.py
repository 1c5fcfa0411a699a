"""Small shares cannot close a card: every percent of a card can be given to a holder of some size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.claims import claim, rebuild
from croupier.core.claims.claim import CardClaim, Granted
from croupier.core.ledger import reported_cards, sync_cards
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.ledger.reported_cards import NodeCardReport, ReportedCard, ReportedPool
from croupier.core.model import smallest_share
from croupier.core.model.card import MAX_HOLDERS
from croupier.core.model.card_request import CardShares, PoolUnits
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal
from croupier.core.model.sharing import Sharing
from tests.core.ledger_builders import NODE, card_id, node, shared

MPS_CLIENTS = 48
"""Processes that MPS serves per card, with drivers that do not serve more."""
TOO_SMALL = (
    "a share of 1 % is below the smallest share of cards without a pool, which is 3 %: "
    "ask for at least 3 % of each card, or have the setting sharing.minPercent lowered"
)


def decided(ledger: Ledger, holder: str, percent: int) -> Granted | Refusal:
    return claim.decide(ledger, CardClaim(holder, (CardShares(1, percent),), HoldTerms()), "BinPack")


def test_a_share_below_the_smallest_is_refused_with_what_to_do():
    refused = decided(node(shared(0, smallest=3)), "a/pod/u", 1)

    assert isinstance(refused, Refusal)
    assert refused.reason == TOO_SMALL


def test_the_refusal_names_the_pool():
    ledger = node(shared(0, smallest=5, pool="team"))
    asked = CardClaim("a/pod/u", (PoolUnits("team", 4),), HoldTerms())

    refused = claim.decide(ledger, asked, "BinPack")

    assert isinstance(refused, Refusal)
    assert "of cards of pool team, which is 5 %" in refused.reason
    assert "have resource.minPercent of GPUPool team lowered" in refused.reason


@given(st.lists(st.integers(1, 20), max_size=80))
def test_with_the_default_a_card_never_runs_out_of_holders(shares):
    """What is left of a card is below the smallest share, or can be given."""
    ledger = node(shared(0, smallest=smallest_share.DEFAULT))
    for number, percent in enumerate(shares):
        answer = decided(ledger, f"a/pod-{number}/u", percent)
        ledger = answer.ledger if isinstance(answer, Granted) else ledger

    (card,) = ledger.cards
    assert len(card.holders) <= min(MAX_HOLDERS, MPS_CLIENTS)
    left = 100 - card.used
    assert left < smallest_share.DEFAULT or isinstance(decided(ledger, "a/last/u", left), Granted)


def test_a_card_that_gives_smaller_shares_is_used():

    ledger = node(shared(0, smallest=10), shared(1, smallest=2))

    answer = decided(ledger, "a/pod/u", 5)

    assert isinstance(answer, Granted)
    assert [part.card for part in answer.grant] == [card_id(1)]


def test_holders_that_exist_keep_their_small_shares():
    before = node(shared(0, 1, 1, smallest=1))
    report = NodeCardReport(NODE, devices=(ReportedCard(card_id(0), 0),), smallest=3)

    after = sync_cards.sync(before, report)

    assert after.cards[0].holders == before.cards[0].holders
    assert (after.cards[0].smallest, after.cards[0].epoch) == (3, before.cards[0].epoch)


def test_a_running_pod_with_a_small_share_is_adopted():
    pod = PodView("a/pod", "u", NODE, wants=(CardShares(1, 1),))

    adopted, _ = rebuild.adopt(node(shared(0, smallest=3)), pod)

    assert adopted.grant("a/pod/u")[0].share == 1
    assert adopted.cards[0].smallest == 3


REPORTED = {
    "a card without a pool": (ReportedCard("a", 0), 3),
    "a pool that sets none": (ReportedCard("a", 0, pool="plain"), 3),
    "a pool that sets its own": (ReportedCard("a", 0, pool="own"), 10),
    "whole cards have none": (ReportedCard("a", 0, pool="whole"), 1),
}


@pytest.mark.parametrize(("card", "smallest"), REPORTED.values(), ids=REPORTED)
def test_where_the_smallest_share_comes_from(card, smallest):
    pools = {
        "plain": ReportedPool(Sharing("MPS")),
        "own": ReportedPool(Sharing("MPS"), smallest=10),
        "whole": ReportedPool(Sharing("Exclusive"), smallest=10),
    }
    report = NodeCardReport(NODE, devices=(card,), pools=pools, smallest=3)

    assert [each.smallest for each in reported_cards.from_report(report).cards] == [smallest]


def test_a_report_that_does_not_know_it_changes_nothing():
    before = node(shared(0, smallest=7))
    report = NodeCardReport(NODE, devices=(ReportedCard(card_id(0), 0),), smallest=0)

    assert sync_cards.sync(before, report) == before
