"""The status of each Reservation of a node, derived from the ledger.

A refusal says what is missing and which other nodes have enough free capacity. These figures
change with every pod, so the message of a refusal is updated only after a debounce period.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from croupier.core.ledgers import claim, reservation
from croupier.core.ledgers.ledger import Ledger, Refused
from croupier.core.ledgers.reservation import Asked, Outcome, Scene, Told
from croupier.core.placing import placement
from croupier.core.placing.placement import Strategy
from croupier.core.pods import want
from croupier.core.pods.want import Shares

CALM: Final = timedelta(seconds=10)
"""Minimum time between two updates of the same refusal."""
RECHECK: Final = 60.0
"""Seconds after which a refused Reservation is checked again."""
PATIENCE: Final = 5.0
"""Seconds between checks while another controller must act first."""
MOST_NAMED: Final = 3
"""Maximum number of alternative nodes in a refusal."""


@dataclass(frozen=True, slots=True)
class Judgement:
    outcomes: Mapping[str, Outcome]
    """By `namespace/name`; other Reservations keep their status."""
    free: frozenset[str] = frozenset()
    """Deleted Reservations that hold nothing, so that their finalizer can be removed."""
    again_after: float | None = None


def judge(
    ledger: Ledger | None, scene: Scene, elsewhere: Mapping[str, Ledger], strategy: Strategy
) -> Judgement:
    """Call it after `reservation.apply`; `elsewhere` are the ledgers of the other nodes."""
    outcomes, free, looks = {}, set(), []
    holding = reservation.by_reservation(ledger)
    rooms = _Rooms(elsewhere, strategy)
    for asked in scene.reservations:
        holder = holding.get(asked.key)
        if asked.deleted:
            free |= {asked.key} if holder is None else set()
            continue
        outcome = _outcome(ledger, holder, asked, scene) or _refusal(ledger, asked, scene, rooms)
        if outcome is not None and _is_news(outcome, asked.told, scene.now):
            outcomes[asked.key] = outcome
        looks.append(_look(outcome, asked, scene))
    soonest = min((look for look in looks if look is not None), default=None)
    return Judgement(outcomes, frozenset(free), soonest)


def _outcome(ledger: Ledger | None, holder: str | None, asked: Asked, scene: Scene) -> Outcome | None:
    """The outcome unless it is a refusal for lack of capacity; None also if the status stays unchanged."""
    if ledger is not None and holder is not None:
        grant = ledger.grant(holder)
        message = f"holds {reservation.shares(grant)} of {ledger.node}"
        reason: reservation.Reason = "Granted" if holder in ledger.held else "PodBound"
        return Outcome(reason, message, grant, reservation.uid_of(holder))
    if asked.told.phase == "Released" or _unmade(ledger, asked, scene):
        return None
    if scene.ended(asked) or scene.left(asked):
        return Outcome("PodEnded", f"pod {asked.pod} has ended")
    if scene.expired(asked):
        return Outcome("Expired", f"expired after {asked.ttl} s without a bound pod")
    return reservation.obstacle(ledger, asked, scene)


def _refusal(ledger: Ledger | None, asked: Asked, scene: Scene, rooms: "_Rooms") -> Outcome | None:
    if asked.told.phase == "Released" or _unmade(ledger, asked, scene):
        return None
    if not scene.exists:
        return Outcome("UnknownNode", f"node {scene.node} does not exist; {rooms.named(asked.want)}")
    if ledger is None or not ledger.cards:
        return Outcome("NoCards", f"{scene.node} has no cards; {rooms.named(asked.want)}")
    refused = claim.decide(ledger, reservation.claim_of(asked, scene), rooms.strategy)
    if not isinstance(refused, Refused):
        return None
    short = f"{scene.node} cannot provide {want.sentence((asked.want,))}: {refused}"
    return Outcome("InsufficientCapacity", f"{short}; {rooms.named(asked.want)}")


def _unmade(ledger: Ledger | None, asked: Asked, scene: Scene) -> bool:
    """The ledger of the node will be rebuilt from this status, so it must not change now."""
    return ledger is None and scene.exists and asked.told.phase == "Reserved"


def _is_news(outcome: Outcome, told: Told, now: datetime) -> bool:
    """Whether to publish the outcome; a refusal with new figures only is debounced."""
    if outcome.phase != "Failed" or (told.phase, told.reason) != (outcome.phase, outcome.reason):
        return True
    return told.since is None or told.message == outcome.message or told.since + CALM <= now


def _look(outcome: Outcome | None, asked: Asked, scene: Scene) -> float | None:
    """Seconds until the next check if nothing changes; None: no check."""
    if outcome is None:
        return None if asked.told.phase == "Released" else PATIENCE
    if outcome.phase == "Released" or outcome.reason == "PodBound":
        return None
    left = None if asked.until is None else (asked.until - scene.now).total_seconds()
    if left is not None and left <= 0:
        return PATIENCE  # a bind is in progress: the holder controller fences it and ends the hold
    if outcome.phase != "Failed":
        return left
    recheck = RECHECK if outcome.message == asked.told.message else CALM.total_seconds()
    return recheck if left is None else min(left, recheck)


@dataclass(frozen=True, slots=True)
class _Rooms:
    """The other nodes that could provide a request, cached per request."""

    ledgers: Mapping[str, Ledger]
    strategy: Strategy
    known: dict[Shares, str] = field(default_factory=dict)

    def named(self, wanted: Shares) -> str:
        if wanted not in self.known:
            self.known[wanted] = self._look(wanted)
        return self.known[wanted]

    def _look(self, wanted: Shares) -> str:
        nodes: list[str] = []
        for node in sorted(self.ledgers):
            if not isinstance(placement.choose(self.ledgers[node], (wanted,), self.strategy), Refused):
                nodes.append(node)
            if len(nodes) == MOST_NAMED:
                break
        return f"available on {', '.join(nodes)}" if nodes else "not available on any other node"
