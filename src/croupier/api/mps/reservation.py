"""Reservation: a claim on shares of a node's cards for one pod, and what became of it."""

from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta

from croupier.api.meta import DNS_LABEL, DNS_NAME, Conditions, NodeName, ObjectMeta
from croupier.api.wire import INT32, Rule, Wire, fixed, matches, rule

RELEASE_FINALIZER: Final = "mps.nvidia.com/release"

PodKey: TypeAlias = Annotated[
    str,
    Meta(max_length=317),
    matches(f"^{DNS_LABEL}/{DNS_NAME}$", "podKey must be namespace/name, for example default/my-pod"),
]
CardID: TypeAlias = Annotated[str, Meta(min_length=1, max_length=253)]
Percent: TypeAlias = Annotated[int, Meta(ge=1, le=100), INT32]
ReservationPhase: TypeAlias = Literal["Pending", "Reserved", "Failed", "Released"]


class ReservationSpec(Wire, frozen=True, kw_only=True):
    """What is asked for: so many percent of so many cards of one node, for one pod."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "has(self.owner) == has(oldSelf.owner) && (!has(self.owner) || self.owner == oldSelf.owner)",
            "owner cannot change: delete the Reservation and create another",
        ),
    )

    pod_key: Annotated[PodKey, fixed("podKey")]
    """The pod the cards are for, as namespace/name, in the Reservation's own namespace. Immutable."""
    node_name: Annotated[NodeName, fixed("nodeName")]
    """The node whose cards are asked for. Immutable."""
    num_cards: Annotated[int, Meta(ge=1, le=32), INT32, fixed("numCards")]
    """How many different cards of the node. Immutable."""
    percent_per_card: Annotated[Percent, fixed("percentPerCard")]
    """The share of each card in percent; 100 is the whole card. Immutable."""
    owner: Annotated[str, Meta(max_length=253)] = ""
    """Who asked, in free text; shown, never interpreted. Immutable."""
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1), INT32] = 0
    """Higher goes first when several wait for one node."""
    ttl_seconds: Annotated[int, Meta(ge=1, le=86400), INT32] | None = None
    """Released after so many seconds without a bound pod; stays until deleted when unset."""


class GrantedCard(Wire, frozen=True, kw_only=True):
    """A card of which the Reservation holds a share."""

    id: CardID
    """The card's inventoryID."""
    percent: Percent
    """The share held, in percent."""


class ReservationStatus(Wire, frozen=True, kw_only=True):
    """What became of it."""

    phase: ReservationPhase = "Pending"
    """Pending until decided, Reserved while held, Failed until capacity changes, Released for good."""
    message: Annotated[str, Meta(max_length=32768)] = ""
    """Why, in a sentence."""
    last_update_time: datetime | None = None
    """When the phase or the message last changed."""
    cards: Annotated[tuple[GrantedCard, ...], Meta(max_length=32)] = ()
    """The cards granted."""
    pod_uid: Annotated[str, Meta(max_length=36)] = ""
    """UID of the pod, once there is one."""
    conditions: Conditions = ()
    """Details, each with a reason programs may rely on."""


class Reservation(Wire, frozen=True, kw_only=True):
    """A claim on shares of a node's GPU cards for one pod."""

    spec: ReservationSpec
    """What is asked for."""
    metadata: ObjectMeta = ObjectMeta()
    status: ReservationStatus = ReservationStatus()
    """What became of it; written by the controller."""
