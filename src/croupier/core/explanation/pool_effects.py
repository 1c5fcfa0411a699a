"""What a change of a pool would do: another sharing of its cards, a confirmation, a released Reservation.

core/pools/maintenance.py decides about the sharing, as in the pool controller. Here is added what it reports
only later: cards on which the sharing is impossible, and the capacity after the change.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from croupier.core.explanation import card_outcomes
from croupier.core.explanation import fleet as fleets
from croupier.core.explanation.card_outcomes import Outcome
from croupier.core.explanation.fleet import FleetCard
from croupier.core.ledger import reported_cards
from croupier.core.ledger.reported_cards import NodeCardReport, ReportedCard, ReportedPool
from croupier.core.model import name_list
from croupier.core.model.card import LedgerCard
from croupier.core.model.name_list import shortened
from croupier.core.model.sharing import Sharing
from croupier.core.pools import capacity as pool_capacity
from croupier.core.pools import maintenance, mig_support
from croupier.core.pools.capacity import MAX_LISTED, Capacity, CountedCard
from croupier.core.pools.sharing_change import PoolFacts, PoolMember


@dataclass(frozen=True, slots=True)
class SharingEffect:
    """The result of a new sharing; `sentence` has the pool as its subject."""

    outcome: Outcome
    sentence: str
    notes: tuple[str, ...] = ()


def share(facts: PoolFacts, cards: Iterable[FleetCard]) -> SharingEffect:
    """Decide about `facts.wanted`, the new sharing, for the cards of the pool."""
    wanted = facts.wanted
    if facts.deleting:
        return SharingEffect("declined", "is being deleted, so its sharing does not change any more")
    if problems := [why for card in cards if (why := _impossible(card, wanted))]:
        why = shortened(problems, MAX_LISTED)
        return SharingEffect("declined", f"cannot be shared as {wanted}: {why}; the pool would stay as it is")
    if facts.change is None and wanted == facts.applied:
        return SharingEffect("unchanged", f"is shared as {wanted} already")
    decision = maintenance.decide(replace(facts, members=tuple(map(_visible, facts.members))))
    drift = decision.misconfigured
    if drift.status == "True" and drift.reason == maintenance.DRIFTED:
        return SharingEffect("later", f"changes after its drift is repaired: {drift.message}")
    if drift.status == "True" and drift.reason == maintenance.UNCONFIRMED:
        return SharingEffect("later", f"changes, but stays closed until it is confirmed: {drift.message}")
    return _changing(facts, decision.maintenance.message)


def _changing(facts: PoolFacts, waits_for: str) -> SharingEffect:
    change, number = f"from {facts.applied or facts.wanted} to {facts.wanted}", len(facts.members)
    held = sum(
        1 for member in facts.members if member.holdings and not (facts.per_card and member.unavailable)
    )
    if facts.per_card:
        verb = "changes when its" if held == 1 else "change when their"
        waits = f"; {name_list.part_of(held, number, 'card')} {verb} pods have ended" if held else ""
        return SharingEffect(
            "later" if held else "now", f"changes {change} card by card and stays open{waits}"
        )
    if not held:
        return SharingEffect("now", f"closes, changes its {_cards(number)} {change}, and opens again")
    closed = "the pool gives no cards to new pods until the change is complete"
    return SharingEffect("later", f"closes now: {waits_for}", (closed,))


def _cards(number: int) -> str:
    return "card" if number == 1 else f"{number} cards"


def _visible(member: PoolMember) -> PoolMember:
    """The member, with the holders of other namespaces not named."""
    return replace(member, holdings=tuple(map(_visible_holding, member.holdings)))


def _visible_holding(sentence: str) -> str:
    if not sentence.startswith(card_outcomes.HIDDEN):
        return sentence
    return f"a pod of another namespace {sentence.partition(' ')[2]}"


def _impossible(card: FleetCard, sharing: Sharing) -> str:
    """Why the card cannot be shared so, as far as its MIG profiles are known."""
    return "" if card.defect else mig_support.obstacle(card.card.mig, sharing, f"card {card.id}")


def shared_capacity(
    pool: str, cards: Mapping[str, FleetCard], ledger: Iterable[LedgerCard], sharing: Sharing
) -> Capacity:
    """The capacity of these cards of the pool once no pod holds them and they have the new sharing."""
    entries = [entry for entry in ledger if entry.pool == pool and entry.id in cards]
    reports = tuple(
        replace(_reshared(cards[entry.id], sharing), pool=pool, index=entry.index) for entry in entries
    )
    if not reports:
        return Capacity()
    report = NodeCardReport("node", devices=reports, pools={pool: ReportedPool(sharing)})
    counted = reported_cards.from_report(report).cards
    lines = (CountedCard(card, serves=card.healthy and not cards[card.id].idle_reason) for card in counted)
    return pool_capacity.count(lines, sharing.mode)


def _reshared(card: FleetCard, sharing: Sharing) -> ReportedCard:
    return fleets.with_sharing(replace(card.reported, withheld=None), sharing)


def confirm(misconfigured: str, configured: str, message: str) -> tuple[Outcome, str]:
    """Decide by the reasons of the conditions Misconfigured (empty if False) and Configured."""
    if misconfigured == maintenance.UNCONFIRMED:
        return "now", f"is used again; it waited for this confirmation: {message}"
    if misconfigured == maintenance.DRIFTED:
        return "later", f"is used again once its cards are repaired: {message}"
    if misconfigured:
        return "later", f"is confirmed, but stays misconfigured until the cause is gone: {message}"
    if configured == "RolledBack":
        return "now", f"tries the change again that was rolled back: {message}"
    return "unchanged", "is not misconfigured: there is nothing to confirm"
