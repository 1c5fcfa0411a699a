"""Decides the Reservations of one node, all of them together so that priority counts.

The ledger is authoritative and a Reservation's status mirrors it. So there are two steps:
`apply` changes the ledger (ends, takes over and extends holds, then tries pending Reservations
by priority) and is safe to repeat on a newer ledger; `reservation_status.decide` reads the grant
of each Reservation and decides its status.

Nothing here frees cards that a pod may be using: if a Reservation is deleted while its pod is
bound, the pod keeps the cards. A Reservation whose pod is being bound (Held, with a UID) is
expired by the holder controller, which fences the binding first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from croupier.core.claims import claim
from croupier.core.claims.claim import CardClaim, Granted
from croupier.core.claims.reservation_inputs import ReservationInputs, ReservationOutcome, ReservationRequest
from croupier.core.ledger import holder as holder_names
from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model import card_request
from croupier.core.model.card import Grant
from croupier.core.model.card_request import CardShares
from croupier.core.model.pod_view import PodView
from croupier.core.placement.placement import Strategy

DETACHED_HOLD_TTL: Final = timedelta(seconds=120)
"""How long a pod that is being bound keeps the cards of a deleted Reservation."""


def ended_holders(
    ledger: Ledger | None, pods: Mapping[str, PodView]
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Holders whose pod has ended, and holders whose pod is not in the cache and needs a live read."""
    over, unseen = set(), []
    for holder in ledger.reservations if ledger is not None else ():
        if not holder_names.uid(holder):
            continue
        pod = pods.get(holder_names.pod_key(holder))
        if pod is None or pod.holder != holder:
            unseen.append(holder)
        elif pod.finished:
            over.add(holder)
    return frozenset(over), tuple(unseen)


def reservations_of_ended_pods(
    ledger: Ledger | None, over: Iterable[str], scene: ReservationInputs
) -> frozenset[str]:
    """Reservations of the holders in `over` whose pod was bound here."""
    if ledger is None:
        return frozenset()
    here = {pod.holder for pod in scene.pods.values() if pod.node == scene.node}
    return frozenset(
        _reservation(holder, ledger.reservations[holder])
        for holder in over
        if holder in ledger.reservations and (holder not in ledger.held or holder in here)
    )


def cards_without_pod(ledger: Ledger | None) -> frozenset[str]:
    """The cards that Reservations hold for pods that do not use them yet."""
    if ledger is None:
        return frozenset()
    waiting = (holder for holder in ledger.reservations if not holder_names.uid(holder))
    return frozenset(part.card for holder in waiting for part in ledger.grant(holder))


def unknown_reservations(
    ledger: Ledger | None, reservations: Iterable[ReservationRequest]
) -> tuple[str, ...]:
    """Holders whose Reservation is not in the cache and needs a live read."""
    known = {asked.key for asked in reservations}
    names = ledger.reservations if ledger is not None else {}
    return tuple(holder for holder, name in names.items() if _reservation(holder, name) not in known)


def without_finalizer(ledger: Ledger | None, scene: ReservationInputs, strategy: Strategy) -> tuple[str, ...]:
    """Reservations that would get cards now but do not have the finalizer yet."""
    if ledger is None:
        return ()
    guarded = tuple(
        asked if asked.deleted else replace(asked, has_finalizer=True) for asked in scene.reservations
    )
    holding = by_reservation(apply(ledger, replace(scene, reservations=guarded), strategy))
    return tuple(
        asked.key for asked in scene.reservations if not asked.has_finalizer and asked.key in holding
    )


def pending(ledger: Ledger | None, scene: ReservationInputs) -> tuple[ReservationRequest, ...]:
    """The Reservations that hold nothing and would be tried, most urgent first.

    A Reservation for a pod that holds the cards already adds nothing.
    """
    if ledger is None:
        return ()
    holding = by_reservation(ledger)
    tried = (
        asked
        for asked in scene.reservations
        if asked.key not in holding and _is_pending(asked, scene) and not _own_holder(ledger, asked, scene)
    )
    return tuple(sorted(tried, key=lambda reservation: reservation.urgency))


def apply(ledger: Ledger, scene: ReservationInputs, strategy: Strategy) -> Ledger:
    """The ledger after ending, taking over, extending and granting holds."""
    by_key = {asked.key: asked for asked in scene.reservations}
    for holder, name in tuple(ledger.reservations.items()):
        asked = by_key.get(_reservation(holder, name))
        if asked is not None:
            ledger = _updated_hold(ledger, holder, asked, scene)
        elif holder in scene.orphans:
            ledger = detach(ledger, holder, scene)
    holding = by_reservation(ledger)
    for asked in sorted(scene.reservations, key=lambda reservation: reservation.urgency):
        may = scene.granted is None or asked.key in scene.granted
        if may and asked.has_finalizer and asked.key not in holding and _is_pending(asked, scene):
            ledger = try_claim(ledger, asked, scene, strategy)
    return ledger


def detach(ledger: Ledger, holder: str, scene: ReservationInputs) -> Ledger:
    """End the Reservation of `holder`: release the hold if no pod took it over, else leave it to the pod."""
    if not holder_names.uid(holder) or holder in scene.over:
        return ledger_ops.release(ledger, holder)
    if holder in ledger.held:
        until, soon = ledger.held[holder], scene.now.replace(microsecond=0) + DETACHED_HOLD_TTL
        ledger = ledger_ops.extend(ledger, holder, soon if until is None else min(until, soon))
    names = {key: name for key, name in ledger.reservations.items() if key != holder}
    return replace(ledger, reservations=names)


def _updated_hold(ledger: Ledger, holder: str, asked: ReservationRequest, scene: ReservationInputs) -> Ledger:
    """Update the cards that the Reservation holds as `holder`."""
    if _has_ended(ledger, holder, asked, scene):
        return detach(ledger, holder, scene)
    if not holder_names.uid(holder):
        return _updated_waiting_hold(ledger, asked, scene)
    pod = scene.pods.get(asked.pod)
    own = pod is not None and pod.holder == holder
    here = own and pod is not None and pod.node == scene.node
    if holder not in ledger.held:
        return ledger_ops.release(ledger, holder) if holder in scene.over else ledger
    if here:
        return ledger_ops.release(ledger, holder) if holder in scene.over else ledger_ops.bind(ledger, holder)
    if holder in scene.over or (own and pod is not None and pod.node):
        return _updated_waiting_hold(_returned_to_reservation(ledger, holder), asked, scene)
    return _extended_only(ledger, holder, asked.until)


def _has_ended(ledger: Ledger, holder: str, asked: ReservationRequest, scene: ReservationInputs) -> bool:
    """The Reservation is deleted, or `holder` is not its own.

    A bound pod that requests no cards itself keeps its deleted Reservation, because quotas count the
    Reservation.
    """
    if not asked.deleted:
        own = holder_names.pod_key(holder) == asked.pod
        return not own or not grant_matches(ledger.grant(holder), asked.want)
    pod = scene.pods.get(asked.pod)
    uncharged = pod is not None and pod.holder == holder and not pod.wants
    return not uncharged or holder in ledger.held


def _extended_only(ledger: Ledger, holder: str, until: datetime | None) -> Ledger:
    """Extend, never shorten: a bind in progress may have extended the hold to prevent its expiry."""
    now = ledger.held[holder]
    later = now is not None and (until is None or until > now)
    return ledger_ops.extend(ledger, holder, until) if later else ledger


def _returned_to_reservation(ledger: Ledger, holder: str) -> Ledger:
    """The pod was not bound to the node: the Reservation waits for the next pod of that name."""
    return ledger_ops.release(ledger_ops.rename(ledger, holder, holder_names.pod_key(holder)), holder)


def _updated_waiting_hold(ledger: Ledger, asked: ReservationRequest, scene: ReservationInputs) -> Ledger:
    """Update a hold under the pod's name without UID."""
    pod = scene.bound(asked.pod)
    if pod is not None:
        named = ledger_ops.release(ledger_ops.rename(ledger, asked.pod, pod.holder), asked.pod)
        return ledger_ops.bind(named, pod.holder)
    over = scene.ended(asked) or scene.expired(asked) or not scene.exists
    lost = any(part.card in scene.lost for part in ledger.grant(asked.pod))
    if over or lost or scene.yields(asked):
        return ledger_ops.release(ledger, asked.pod)
    return ledger_ops.extend(ledger, asked.pod, asked.until)


def _is_pending(asked: ReservationRequest, scene: ReservationInputs) -> bool:
    """It holds nothing and should be tried."""
    over = asked.deleted or asked.last_status.phase == "Released" or not scene.exists
    return not (over or scene.ended(asked) or scene.left(asked) or scene.expired(asked))


def try_claim(
    ledger: Ledger, asked: ReservationRequest, scene: ReservationInputs, strategy: Strategy
) -> Ledger:
    if obstacle(ledger, asked, scene) is not None:
        return ledger
    if (holder := _own_holder(ledger, asked, scene)) is not None:
        return replace(ledger, reservations={**ledger.reservations, holder: asked.name})
    taken = claim.decide(ledger, claim_of(asked, scene), strategy)
    return taken.ledger if isinstance(taken, Granted) else ledger


def claim_of(asked: ReservationRequest, scene: ReservationInputs) -> CardClaim:
    pod = scene.bound(asked.pod)
    if pod is not None:
        return CardClaim(
            pod.holder, (asked.want,), HoldTerms(bound=True, reservation=asked.name), asked.priority
        )
    terms = HoldTerms(until=asked.until, reservation=asked.name)
    return CardClaim(asked.pod, (asked.want,), terms, asked.priority)


def _own_holder(ledger: Ledger, asked: ReservationRequest, scene: ReservationInputs) -> str | None:
    """The existing holder of its pod that was placed without a Reservation."""
    pod = scene.pods.get(asked.pod)
    if pod is not None and not pod.finished and ledger.grant(pod.holder):
        return pod.holder
    return asked.pod if ledger.grant(asked.pod) else None


def obstacle(
    ledger: Ledger | None, asked: ReservationRequest, scene: ReservationInputs
) -> ReservationOutcome | None:
    """A refusal that does not depend on free capacity."""
    if asked.pod.partition("/")[0] != asked.namespace:
        return ReservationOutcome(
            "WrongNamespace",
            f"podKey {asked.pod} is in another namespace: a Reservation in {asked.namespace}"
            f" can only be for a pod of {asked.namespace}",
        )
    if (refused := scene.refused.get(asked.key)) is not None:
        return refused
    if ledger is None or not scene.exists or not ledger.cards:
        return None
    return _held_elsewhere(asked, scene) or _held_here(ledger, asked, scene)


def _held_elsewhere(asked: ReservationRequest, scene: ReservationInputs) -> ReservationOutcome | None:
    if (pod := scene.elsewhere(asked)) is not None:
        return ReservationOutcome(
            "PodElsewhere", f"pod {asked.pod} is bound to {pod.node}, so it cannot use cards of {scene.node}"
        )
    if (rival := next(iter(scene.rivals.get(asked.pod, ())), None)) is not None:
        return ReservationOutcome("AlreadyReserved", rival.describe(asked.pod))
    return None


def _held_here(
    ledger: Ledger, asked: ReservationRequest, scene: ReservationInputs
) -> ReservationOutcome | None:
    for holder, name in ledger.reservations.items():
        if holder_names.pod_key(holder) == asked.pod and name != asked.name:
            return ReservationOutcome(
                "AlreadyReserved",
                f"pod {asked.pod} already has cards of {scene.node} through Reservation {name}:"
                " only one Reservation per pod and node can hold cards",
            )
    own = _own_holder(ledger, asked, scene)
    if own is not None and not grant_matches(ledger.grant(own), asked.want):
        return ReservationOutcome(
            "PodHoldsOther",
            f"pod {asked.pod} already has {describe_grant(ledger.grant(own))} of {scene.node},"
            f" not {card_request.describe((asked.want,))}",
        )
    return None


def grant_matches(grant: Grant, wanted: CardShares) -> bool:
    """Whether the grant is exactly the requested shares."""
    return len(grant) == wanted.cards and all(
        part.share == wanted.percent and not part.slots for part in grant
    )


def describe_grant(grant: Grant) -> str:
    """`50 % of card a and 50 % of card b`."""
    return " and ".join(
        f"{part.share} % of card {part.card}" if not part.slots else f"{', '.join(part.slots)} of {part.card}"
        for part in grant
    )


def by_reservation(ledger: Ledger | None) -> dict[str, str]:
    """The holder of every Reservation that holds cards, by `namespace/name`."""
    names = ledger.reservations if ledger is not None else {}
    return {_reservation(holder, name): holder for holder, name in names.items()}


def _reservation(holder: str, name: str) -> str:
    return f"{holder.partition('/')[0]}/{name}"
