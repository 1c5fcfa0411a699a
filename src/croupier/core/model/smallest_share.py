"""The smallest share of a card that a new holder gets.

A card has at most 64 holders, and MPS serves at most 48 processes of a card (60 with recent drivers). Without
a smallest share, 64 holders of 1 % would close a card with 36 % unused. The default gives 33 holders at most,
each of which can start a process with any driver. Holders that exist keep what they have.
"""

from typing import Final

from croupier.core.model.refusal import Refusal

DEFAULT: Final = 3
"""Percent of a card."""


def refusal(percent: int, smallest: int, pool: str = "") -> Refusal | None:
    """Why a share is too small; None if it is not."""
    if percent >= smallest:
        return None
    place = f"of cards of pool {pool}" if pool else "of cards without a pool"
    setting = f"resource.minPercent of GPUPool {pool}" if pool else "the setting sharing.minPercent"
    return Refusal(
        f"a share of {percent} % is below the smallest share {place}, which is {smallest} %: "
        f"ask for at least {smallest} % of each card, or have {setting} lowered"
    )
