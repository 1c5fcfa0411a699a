"""A Reservation, what is known when the Reservations of a node are decided, and every outcome."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from croupier.core.claims.rival_hold import RivalHold
from croupier.core.model.card import Grant
from croupier.core.model.card_request import CardShares
from croupier.core.model.phase import ReservationPhase
from croupier.core.model.pod_view import PodView

ReservationReason: TypeAlias = Literal[
    "Granted",
    "PodBound",
    "InsufficientCapacity",
    "UnknownNode",
    "NoCards",
    "AwaitingCards",
    "WrongNamespace",
    "AlreadyReserved",
    "PodHoldsOther",
    "PodElsewhere",
    "QuotaExceeded",
    "LimitExceeded",
    "TTLTooLong",
    "UnknownPriorityClass",
    "PodEnded",
    "Expired",
]

PHASE: Final[Mapping[ReservationReason, ReservationPhase]] = {
    "Granted": "Reserved",
    "PodBound": "Reserved",
    "InsufficientCapacity": "Failed",
    "UnknownNode": "Failed",
    "NoCards": "Failed",
    "AwaitingCards": "Pending",
    "WrongNamespace": "Failed",
    "AlreadyReserved": "Failed",
    "PodHoldsOther": "Failed",
    "PodElsewhere": "Failed",
    "QuotaExceeded": "Failed",
    "LimitExceeded": "Failed",
    "TTLTooLong": "Failed",
    "UnknownPriorityClass": "Failed",
    "PodEnded": "Released",
    "Expired": "Released",
}
"""The phase of each reason; every outcome has one of these reasons."""

PHASE_CHANGES: Final[Mapping[ReservationPhase, Mapping[ReservationPhase, str]]] = {
    "Pending": {
        "Pending": "the cards of the node are not known yet",
        "Reserved": "the cards are held",
        "Failed": "the cards cannot be held; the message says why",
        "Released": "it expired before a pod was bound",
    },
    "Failed": {
        "Reserved": "capacity changed and now it fits",
        "Failed": "it still does not fit, for another reason",
        "Released": "it expired before a pod was bound",
    },
    "Reserved": {
        "Reserved": "its pod was bound, or it got other cards for those that are gone",
        "Failed": "the node or its cards do not exist any more, or its pod is bound to another node",
        "Released": "its pod ended, or it expired before a pod was bound",
    },
    "Released": {},
}
"""All phase changes. Released is final, unless the ledger still has a grant for the Reservation."""


@dataclass(frozen=True, slots=True)
class LastReservationStatus:
    """The current status; used only if the ledger has no information."""

    phase: ReservationPhase = "Pending"
    reason: str = ""
    message: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class ReservationRequest:
    """A Reservation. It may hold cards only with our finalizer, so that its deletion is always noticed."""

    namespace: str
    name: str
    pod: str
    """`namespace/name` of the pod the cards are for."""
    want: CardShares
    created: datetime
    priority: int = 0
    priority_class: str = ""
    until: datetime | None = None
    """When it expires without a bound pod; None: never."""
    deleted: bool = False
    has_finalizer: bool = False
    last_status: LastReservationStatus = LastReservationStatus()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def urgency(self) -> tuple[int, datetime, str]:
        """Sort key: higher priority first, then older."""
        return (-self.priority, self.created, self.key)


@dataclass(frozen=True, slots=True)
class ReservationOutcome:
    """The new status."""

    reason: ReservationReason
    message: str
    grant: Grant = ()
    pod_uid: str = ""

    @property
    def phase(self) -> ReservationPhase:
        return PHASE[self.reason]


@dataclass(frozen=True, slots=True)
class ReservationInputs:
    """The inputs for deciding the Reservations of a node."""

    node: str
    now: datetime
    reservations: tuple[ReservationRequest, ...] = ()
    pods: Mapping[str, PodView] = field(default_factory=dict)
    """The pods of the Reservations, by `namespace/name`."""
    exists: bool = True
    """The Node object exists."""
    expected: bool = False
    """The node has cards that its ledger does not have yet."""
    lost: frozenset[str] = frozenset()
    """Cards of the ledger that do not exist on the node any more, confirmed."""
    over: frozenset[str] = frozenset()
    """Holders whose pod has ended or is gone, verified."""
    departed: frozenset[str] = frozenset()
    """Reservations whose pod was bound here and has ended."""
    orphans: frozenset[str] = frozenset()
    """Holders whose Reservation does not exist any more, verified."""
    rivals: Mapping[str, tuple[RivalHold, ...]] = field(default_factory=dict)
    """Holds of other Reservations on other nodes, by `namespace/name` of their pod."""
    refused: Mapping[str, ReservationOutcome] = field(default_factory=dict)
    """Why Reservations that hold nothing may not get cards, by `namespace/name`."""
    granted: frozenset[str] | None = None
    """The Reservations that may get cards now; None: all. Others were not counted in their budget."""

    def bound(self, pod: str) -> PodView | None:
        """The pod, if it is bound here and has not ended."""
        view = self.pods.get(pod)
        return view if view is not None and view.node == self.node and not view.finished else None

    def expired(self, asked: ReservationRequest) -> bool:
        return asked.until is not None and asked.until <= self.now and self.bound(asked.pod) is None

    def ended(self, asked: ReservationRequest) -> bool:
        """Its pod was bound here and has ended."""
        was_bound = asked.last_status.reason == "PodBound" or asked.key in self.departed
        return was_bound and self.bound(asked.pod) is None

    def elsewhere(self, asked: ReservationRequest) -> PodView | None:
        """Its pod, if it is bound to another node and has not ended."""
        pod = self.pods.get(asked.pod)
        return pod if pod is not None and pod.node not in ("", self.node) and not pod.finished else None

    def yields(self, asked: ReservationRequest) -> bool:
        """Whether it must not keep cards that wait for its pod, because the pod holds cards elsewhere."""
        rivals = self.rivals.get(asked.pod, ())
        return self.elsewhere(asked) is not None or any(
            rival.precedes(asked.key, asked.created) for rival in rivals
        )

    def left(self, asked: ReservationRequest) -> bool:
        """Its hold was already released by another controller, because its pod on this node has finished."""
        pod = self.pods.get(asked.pod)
        finished = pod is not None and pod.finished and pod.node == self.node
        return finished and asked.last_status.phase == "Reserved"
