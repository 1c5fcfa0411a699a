"""What the Reservations of a namespace may hold: its ResourceQuotas, and the limits of the operator.

Kubernetes charges pods. A Reservation holds the same cards before its pod exists, so it is charged the same
numbers here: what pods use of a quota, plus what Reservations hold beyond that, never exceeds the quota. A
pod that requests the cards of its Reservation is charged by Kubernetes, and the Reservation no longer is.

The same function answers at admission, where it informs, and where cards are granted, where it decides.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias, cast

from croupier.core.claims import rebuild, reservation
from croupier.core.claims.reservation_inputs import (
    ReservationInputs,
    ReservationOutcome,
    ReservationReason,
    ReservationRequest,
)
from croupier.core.ledger.ledger import Ledger
from croupier.core.model import name_list
from croupier.core.model.card import CardGrant, Grant, LedgerCard
from croupier.core.model.card_request import WHOLE_CARD, CardRequest, CardShares
from croupier.core.model.reason import Reason
from croupier.core.placement.placement import Strategy
from croupier.core.pods.quota import QuotaUsage
from croupier.core.pods.request_parser import GPU, PERCENT, POOL
from croupier.core.quantity import NANO, ZERO, Quantity

REQUESTS: Final = "requests."
WHOLE_CARDS: Final = REQUESTS + GPU
SHARES: Final = REQUESTS + PERCENT

Charge: TypeAlias = Mapping[str, int]
"""What is charged, by the name of the resource in a ResourceQuota."""


@dataclass(frozen=True, slots=True)
class QuotaScope:
    """One scope of a ResourceQuota, such as PriorityClass In (high)."""

    name: str
    operator: str = "Exists"
    values: frozenset[str] = frozenset()

    def covers(self, priority_class: str) -> bool:
        """Whether it applies to the Reservation of a pod with this PriorityClass."""
        if self.name != "PriorityClass":
            return self.name.startswith("Not")  # NotTerminating, NotBestEffort: like a pod without end
        if self.operator in ("In", "NotIn"):
            return (priority_class in self.values) == (self.operator == "In")
        return bool(priority_class) == (self.operator == "Exists")


@dataclass(frozen=True, slots=True)
class NamespaceQuota:
    name: str
    usage: QuotaUsage
    scopes: tuple[QuotaScope, ...] = ()

    def covers(self, priority_class: str) -> bool:
        return all(scope.covers(priority_class) for scope in self.scopes)


@dataclass(frozen=True, slots=True)
class ReservationLimits:
    """The settings `reservations`; 0 is no limit."""

    max_per_namespace: int = 0
    max_cards_per_namespace: int = 0
    max_ttl: int = 0
    default_ttl: int = 0


UNLIMITED: Final = ReservationLimits()


@dataclass(frozen=True, slots=True)
class NamespaceHoldings:
    """What a namespace holds that Kubernetes does not charge to a pod."""

    reservations: int = 0
    cards: int = 0
    charge: Charge = field(default_factory=dict)

    def plus(self, want: CardShares, charge: Charge) -> "NamespaceHoldings":
        total = Counter(self.charge)
        total.update(charge)
        return NamespaceHoldings(self.reservations + 1, self.cards + want.cards, total)


@dataclass(frozen=True, slots=True)
class NamespaceBudget:
    """All that limits the Reservations of a namespace."""

    quotas: tuple[NamespaceQuota, ...] = ()
    limits: ReservationLimits = UNLIMITED
    holdings: NamespaceHoldings = NamespaceHoldings()

    def charge(self, want: CardShares) -> Charge:
        """Whole cards are charged as such if a quota limits them, else in percent."""
        if want.percent == WHOLE_CARD and self._counts_cards:
            return {WHOLE_CARDS: want.cards}
        return {SHARES: want.cards * want.percent}

    @property
    def _counts_cards(self) -> bool:
        return any(WHOLE_CARDS in quota.usage.hard for quota in self.quotas)

    def charge_of_grant(self, ledger: Ledger, grant: Grant) -> Charge:
        total: Counter[str] = Counter()
        for part in grant:
            if (card := ledger.card(part.card)) is not None:
                total.update(self._charge_of_part(card, part))
        return total

    def _charge_of_part(self, card: LedgerCard, part: CardGrant) -> Charge:
        if card.pool:
            return {f"{REQUESTS}{POOL}{card.pool}": card.units(part)}
        return self.charge(CardShares(1, part.share)) if part.share else {}

    def refusal(self, want: CardShares, priority_class: str = "") -> Reason | None:
        """Why a further Reservation for `want` may hold nothing; None if it may."""
        return self._over_limit(want) or self._over_quota(self.charge(want), priority_class)

    def granted(self, want: CardShares) -> "NamespaceBudget":
        """The budget after a Reservation for `want` was granted."""
        return NamespaceBudget(self.quotas, self.limits, self.holdings.plus(want, self.charge(want)))

    def _over_limit(self, want: CardShares) -> Reason | None:
        limits, held = self.limits, self.holdings
        if limits.max_per_namespace and held.reservations + 1 > limits.max_per_namespace:
            count = name_list.counted(held.reservations, "Reservation")
            return Reason(
                "LimitExceeded",
                f"the namespace has {count} without a bound pod, and the setting "
                f"reservations.maxPerNamespace allows {limits.max_per_namespace}: delete one of them",
            )
        if limits.max_cards_per_namespace and held.cards + want.cards > limits.max_cards_per_namespace:
            count = name_list.counted(held.cards, "card")
            return Reason(
                "LimitExceeded",
                f"Reservations of the namespace hold {count} without a bound pod, and the setting "
                f"reservations.maxCardsPerNamespace allows {limits.max_cards_per_namespace}: "
                "reserve fewer cards, or delete one of them",
            )
        return None

    def _over_quota(self, charge: Charge, priority_class: str) -> Reason | None:
        for quota in self.quotas:
            for name, asked in charge.items():
                if quota.covers(priority_class) and self._exceeds(quota, name, asked):
                    return Reason("QuotaExceeded", self._quota_sentence(quota, name, asked))
        return None

    def pod_refusal(self, charge: Charge, priority_class: str = "") -> Reason | None:
        """Why a pod that requests `charge` would exceed a quota together with the Reservations."""
        shared = {name: asked for name, asked in charge.items() if self.holdings.charge.get(name)}
        return self._over_quota(shared, priority_class)

    def _exceeds(self, quota: NamespaceQuota, name: str, asked: int) -> bool:
        hard = quota.usage.hard.get(name)
        if hard is None:
            return False
        used = quota.usage.used.get(name, ZERO)
        return hard < used + _quantity(self.holdings.charge.get(name, 0) + asked)

    def _quota_sentence(self, quota: NamespaceQuota, name: str, asked: int) -> str:
        used = quota.usage.used.get(name, ZERO)
        reserved = self.holdings.charge.get(name, 0)
        return (
            f"exceeds ResourceQuota {quota.name}: it asks for {asked} of {name.removeprefix(REQUESTS)}, and "
            f"of {quota.usage.hard[name]} pods use {used} and Reservations hold {reserved}; "
            "ask for less, or delete a pod or a Reservation"
        )


def decide(
    ledger: Ledger,
    scene: ReservationInputs,
    strategy: Strategy,
    *,
    budgets: Mapping[str, NamespaceBudget],
    is_charged: Callable[[ReservationRequest], bool],
) -> ReservationInputs:
    """The inputs with the Reservations that may get cards now, and those that exceed the budget.

    Only what fits on the node uses up a budget, so a Reservation that waits for capacity keeps no other one
    waiting. `budgets` are by namespace; `is_charged` says that the pod of a Reservation is charged already.
    """
    waiting = reservation.pending(ledger, scene)
    keys = {asked.key for asked in waiting}
    holding = tuple(asked for asked in scene.reservations if asked.key not in keys)
    current = reservation.apply(ledger, replace(scene, reservations=holding), strategy)
    left, refused, granted = dict(budgets), dict(scene.refused), set()
    for asked in waiting:
        free, budget = is_charged(asked), left[asked.namespace]
        reason = None if free else budget.refusal(asked.want, asked.priority_class)
        if reason is not None:
            code = cast("ReservationReason", reason.code)
            refused.setdefault(asked.key, ReservationOutcome(code, reason.message))
        after = current if asked.key in refused else reservation.try_claim(current, asked, scene, strategy)
        if after is not current:
            granted.add(asked.key)
            left[asked.namespace] = budget if free else budget.granted(asked.want)
        current = after
    allowed = frozenset(granted | {asked.key for asked in holding})
    return replace(scene, refused=refused, granted=allowed)


def holdings(
    ledgers: Iterable[Ledger],
    namespace: str,
    budget: NamespaceBudget,
    requests_of: Callable[[str], CardRequest],
) -> NamespaceHoldings:
    """What the ledgers hold for a namespace beyond the requests of its pods.

    `requests_of` gives the card request of the pod of a holder, empty if there is none. A holder whose pod
    requests less than it holds counts whole: such a pod holds the cards of a Reservation.
    """
    number = cards = 0
    charge: Counter[str] = Counter()
    for ledger in ledgers:
        known = {card.id: card for card in ledger.cards}
        for holder in ledger.holders():
            if not holder.startswith(f"{namespace}/"):
                continue
            grant = ledger.grant(holder)
            if holder in ledger.reservations and holder in ledger.held:
                number, cards = number + 1, cards + len(grant)
            if not rebuild.is_plausible(grant, requests_of(holder), known):
                charge.update(budget.charge_of_grant(ledger, grant))
    return NamespaceHoldings(number, cards, charge)


def end(
    created: datetime, ttl: int | None, *, recorded: datetime | None, now: datetime, limits: ReservationLimits
) -> datetime | None:
    """When a Reservation ends without a bound pod; None: when it is deleted.

    `recorded` is the end that was decided before. A ttl counts from the creation and is capped; an end beyond
    the cap that was decided before stays. Without a ttl, the default counts from the first decision.
    """
    if ttl is None:
        if recorded is not None or not limits.default_ttl:
            return recorded
        return now.replace(microsecond=0) + timedelta(seconds=limits.default_ttl)
    wanted = created + timedelta(seconds=ttl)
    if not limits.max_ttl:
        return wanted
    most = created + timedelta(seconds=limits.max_ttl)
    return min(wanted, most if recorded is None else max(most, recorded))


def ttl_refusal(ttl: int | None, limits: ReservationLimits) -> Reason | None:
    if ttl is None or not limits.max_ttl or ttl <= limits.max_ttl:
        return None
    return Reason(
        "TTLTooLong",
        f"ttlSeconds is {ttl}, and the setting reservations.maxTTL allows {limits.max_ttl} s: set it lower",
    )


def _quantity(amount: int) -> Quantity:
    return Quantity(amount * NANO)
