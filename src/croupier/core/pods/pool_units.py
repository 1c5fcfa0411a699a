"""What units of a pool are in the mode of its cards.

A ResourceQuota is charged the number of units, and the cards are computed from the same number: for every
mode, the result is exactly `count` units or a refusal. Annotations only say how the units are divided over
cards. Admission asks with the mode of the pool, and the ledger asks again with the mode of the cards, because
a pool can change its mode in between.
"""

from typing import Final

from croupier.core.model.card import CardMode
from croupier.core.model.card_request import WHOLE_CARD, CardShares, MigDevices, PoolUnits, TimeSlices
from croupier.core.model.node_request import EXCLUSIVE, MIG, PERCENT, TIME_SLICE, NodeRequest
from croupier.core.model.refusal import Refusal
from croupier.core.pods.request_parser import CARDS, POOL, RATIO

_COUNTED_IN: Final[dict[CardMode, str]] = {
    "Percent": "percent of a card",
    "Exclusive": "whole cards",
    "MIG": "MIG devices",
    "TimeSlice": "time slices",
}


def interpret(want: PoolUnits, mode: CardMode) -> NodeRequest | Refusal:
    if want.spread is not None and _spread_units(want.spread, mode) != want.count:
        return _contradiction(want, want.spread, mode)
    if mode == "Exclusive":
        return NodeRequest(CardShares(want.count, WHOLE_CARD, want.pool), EXCLUSIVE)
    if mode == "MIG":
        return NodeRequest(MigDevices("", want.count, want.pool), MIG)
    if mode == "TimeSlice":
        return NodeRequest(TimeSlices(want.count, want.pool), TIME_SLICE)
    cards = _cards_in_percent(want)
    if cards is None:
        return _ambiguous(want)
    return NodeRequest(CardShares(cards, want.count // cards, want.pool), PERCENT)


def _spread_units(spread: CardShares, mode: CardMode) -> int | None:
    """The units that the annotations describe; None if a pool in this mode cannot give them."""
    if mode == "Percent":
        return spread.cards * spread.percent
    return spread.cards if mode == "Exclusive" and spread.percent == WHOLE_CARD else None


def _cards_in_percent(want: PoolUnits) -> int | None:
    """Over how many cards the percent are divided; None if the request does not say it."""
    if want.spread is not None:
        return want.spread.cards
    if want.count <= WHOLE_CARD:
        return 1
    return want.count // WHOLE_CARD if want.count % WHOLE_CARD == 0 else None


def _ambiguous(want: PoolUnits) -> Refusal:
    return Refusal(
        f"{want.count} % is neither a part of one card nor a number of whole cards;"
        f" set {CARDS} to the number of cards and {RATIO} to the percent of each"
    )


def _contradiction(want: PoolUnits, spread: CardShares, mode: CardMode) -> Refusal:
    units = _spread_units(spread, mode)
    said = f"{CARDS} {spread.cards} × {RATIO} {spread.percent}"
    meant = "not a number of these" if units is None else str(units)
    return Refusal(
        f"the pod asks for {want.count} of {POOL}{want.pool}, which counts {_COUNTED_IN[mode]}, but its"
        f" annotations say {said}, which is {meant}; quotas are charged the request, so they must agree"
    )
