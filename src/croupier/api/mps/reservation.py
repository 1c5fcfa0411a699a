"""Reservation: a claim on shares of a node's cards for one pod."""

from datetime import datetime
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta

from croupier.api.meta import DNS_LABEL, DNS_NAME, Conditions, NodeName, ObjectMeta, ObservedGeneration
from croupier.api.wire import INT32, Rule, Wire, example, immutable, matches, rule
from croupier.core.model.phase import ReservationPhase

RELEASE_FINALIZER: Final = "mps.nvidia.com/release"
MIRROR: Final = "mps.nvidia.com/mirror"
"""The label of a Reservation that only shows what a placed pod holds."""
NO_MIRRORS: Final = f"!{MIRROR}"
"""The label selector for the Reservations that are decided."""

PodKey: TypeAlias = Annotated[
    str,
    Meta(max_length=317),
    matches(f"^{DNS_LABEL}/{DNS_NAME}$", "podKey must be namespace/name, for example default/my-pod"),
    example("default/my-pod"),
]
CardID: TypeAlias = Annotated[str, Meta(min_length=1, max_length=253), example("node-1-0000-65-00-0")]
Percent: TypeAlias = Annotated[int, Meta(ge=1, le=100), INT32, example(50)]


class ReservationSpec(Wire, frozen=True, kw_only=True):
    """The requested shares: a percentage of each of several cards of one node, for one pod."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "has(self.owner) == has(oldSelf.owner) && (!has(self.owner) || self.owner == oldSelf.owner)",
            "owner cannot change: delete the Reservation and create another",
        ),
        rule(
            "has(self.priorityClassName) == has(oldSelf.priorityClassName) && (!has(self.priorityClassName)"
            " || self.priorityClassName == oldSelf.priorityClassName)",
            "priorityClassName cannot change: delete the Reservation and create another",
        ),
        rule(
            "!has(self.priorityClassName) || !has(self.priority) || self.priority == 0",
            "set priorityClassName or priority, not both",
        ),
    )

    pod_key: Annotated[PodKey, immutable("podKey")]
    """The pod as namespace/name. It must be in the namespace of the Reservation. Immutable."""
    node_name: Annotated[NodeName, immutable("nodeName")]
    """The node whose cards are reserved. Immutable."""
    num_cards: Annotated[int, Meta(ge=1, le=32), INT32, immutable("numCards"), example(2)]
    """The number of distinct cards of the node. Immutable."""
    percent_per_card: Annotated[Percent, immutable("percentPerCard")]
    """The share of each card in percent. The value 100 is the whole card. Immutable."""
    owner: Annotated[str, Meta(max_length=253), example("team vision")] = ""
    """The requester as free text. It is displayed and not interpreted. Immutable."""
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1), INT32, example(100)] = 0
    """The Reservation with the highest priority is decided first. A number above 0 needs a right."""
    priority_class_name: Annotated[str, Meta(max_length=253), example("nightly-training")] = ""
    """The PriorityClass that gives the priority, as for pods. Using it needs a right. Immutable."""
    ttl_seconds: Annotated[int, Meta(ge=1, le=86400), INT32, example(120)] | None = None
    """Seconds from the creation until the shares are released if no pod is bound. If unset, a setting."""


class GrantedCard(Wire, frozen=True, kw_only=True):
    """The share of one card that the Reservation holds."""

    id: CardID
    """The inventoryID of the card."""
    percent: Percent
    """The held share of the card in percent."""


class ChargedResource(Wire, frozen=True, kw_only=True):
    """An amount by which the Reservation counts in the ResourceQuotas of its namespace."""

    resource: Annotated[str, Meta(min_length=1, max_length=316), example("requests.gpu.mps.io/percent")]
    """The name of the resource in a ResourceQuota."""
    amount: Annotated[int, Meta(ge=1), INT32, example(100)]
    """The amount that is charged to ResourceQuotas."""


class ReservationStatus(Wire, frozen=True, kw_only=True):
    """The observed state of the Reservation."""

    phase: Annotated[ReservationPhase, example("Reserved")] = "Pending"
    """Pending (not decided), Reserved (held), Failed (retried when capacity changes) or Released (final)."""
    message: Annotated[
        str, Meta(max_length=32768), example("holds 50 % of card node-1-0000-65-00-0 of node-1")
    ] = ""
    """A human-readable explanation of the phase."""
    last_update_time: datetime | None = None
    """The time at which the phase or the message last changed."""
    cards: Annotated[tuple[GrantedCard, ...], Meta(max_length=32)] = ()
    """The granted cards with the held shares."""
    pod_uid: Annotated[str, Meta(max_length=36), example("3f1c2a9e-5a55-4c38-9d0c-2f6d8f1f0a11")] = ""
    """The UID of the pod. Empty until the pod exists."""
    expire_time: datetime | None = None
    """The time at which the shares are released if no pod is bound. Unset if they are kept until deletion."""
    charged: Annotated[tuple[ChargedResource, ...], Meta(max_length=8)] = ()
    """What the Reservation counts in ResourceQuotas. Empty if its pod requests the cards, and counts."""
    observed_generation: ObservedGeneration | None = None
    """The metadata.generation that the status was computed from."""
    conditions: Conditions = ()
    """Conditions of the Reservation. Each has a reason that programs may rely on."""


class Reservation(Wire, frozen=True, kw_only=True):
    """A claim on shares of a node's GPU cards for one pod."""

    spec: ReservationSpec
    """The requested shares: a percentage of each of several cards of one node, for one pod."""
    metadata: ObjectMeta = ObjectMeta()
    status: ReservationStatus = ReservationStatus()
    """The observed state of the Reservation. The controller writes it."""
