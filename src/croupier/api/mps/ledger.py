"""NodeReservation: the ledger of one node.

Capacity and holders of the cards are in one object, so that one write with a resourceVersion commits both,
and the CEL rules here let the API server itself refuse an overcommitted ledger. The cost of a write grows
with the number of fields. Therefore there is one entry per holder and card, and what only few holders have
(an expiry, a Reservation) is in separate maps (docs/decisions/0002-shape-of-the-ledger.md). The totals that
kubectl shows are part of the same write (docs/decisions/0026-the-summary-is-part-of-the-spec.md).
"""

from datetime import datetime
from typing import Annotated, ClassVar, Final, TypeAlias

from msgspec import Meta, field

from croupier.api.meta import (
    DNS_LABEL,
    DNS_NAME,
    MIG_PROFILE,
    MIG_PROFILE_MESSAGE,
    Conditions,
    ObjectMeta,
    ObservedGeneration,
)
from croupier.api.mps.reservation import CardID, Percent
from croupier.api.wire import (
    ATOMIC_MAP,
    INT32,
    INT64,
    Rule,
    Wire,
    cel_rules,
    cel_string,
    example,
    rule,
    schema,
)
from croupier.api.withheld import WithheldCard
from croupier.core.ledger.finding import FindingKind
from croupier.core.model.card import CardMode

Count: TypeAlias = Annotated[int, Meta(ge=0), INT32]

NEVER: Final = "never"
"""The expiry of a hold that does not expire."""

_HOLDER_PATTERN: Final = f"^{DNS_LABEL}/{DNS_NAME}(/[-a-z0-9]+)?$"
_HOLDER_MESSAGE: Final = "a holder is named namespace/pod/uid, or namespace/pod before the pod exists"
_TIME_PATTERN: Final = (
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"
)


class SlotEntry(Wire, frozen=True, kw_only=True):
    """One MIG device of a card, and its holder."""

    id: Annotated[str, Meta(min_length=1, max_length=63), example("1g.10gb-0")]
    """The name of the slot, which is unique on its card."""
    profile: Annotated[str, Meta(max_length=32), example("1g.10gb")]
    """The MIG profile of the slot."""
    start: Annotated[int, Meta(ge=0, le=7), INT32, example(0)]
    """The first memory slice that the slot occupies."""
    size: Annotated[int, Meta(ge=1, le=8), INT32, example(1)]
    """The number of memory slices that the slot occupies."""
    holder: Annotated[
        str, Meta(max_length=354), example("ml/trainer-0/3f1c2a9e-5a55-4c38-9d0c-2f6d8f1f0a11")
    ] = ""
    """The pod that holds the slot, as namespace/pod/uid. The slot is free if unset."""


_COVERED_SLICES: Final = (
    "[0, 1, 2, 3, 4, 5, 6, 7].filter(i, spans.exists(span, span[0] <= i && i < span[1])).size()"
)
_Slots: TypeAlias = Annotated[
    tuple[SlotEntry, ...],
    Meta(max_length=8),
    schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["id"]),
    cel_rules(
        rule(
            "[self.map(s, [s.start, s.start + s.size])].all(spans, "
            f"self.map(s, s.size).sum() == {_COVERED_SLICES})",
            "slots overlap or end beyond memory slice 7",
        ),
        rule(
            f"self.all(s, s.profile.matches({cel_string(MIG_PROFILE)}))",
            f"the profile of a slot {MIG_PROFILE_MESSAGE}",
        ),
        rule(
            f"self.all(s, !has(s.holder) || s.holder.matches({cel_string(_HOLDER_PATTERN)}))", _HOLDER_MESSAGE
        ),
    ),
]
"""The rules are on the list, not on each slot: every evaluated rule costs. The list type keeps ids unique."""


class CardEntry(Wire, frozen=True, kw_only=True):
    """One card: its capacity and its holders."""

    # The rules read each field once: field access in an object costs the API server more than arithmetic.

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "[self.mode].all(m, has(self.capacityPercent) == (m == 'Percent')"
            " && has(self.slots) == (m == 'MIG') && has(self.slices) == (m == 'TimeSlice'))",
            "a card has capacityPercent in mode Percent, slots in MIG, slices in TimeSlice, and nothing else",
            message_expression="'card ' + self.id + ' is in mode ' + self.mode + ': it must have '"
            " + (self.mode == 'Percent' ? 'capacityPercent and neither slots nor slices' : self.mode == 'MIG'"
            " ? 'slots and neither capacityPercent nor slices' : self.mode == 'TimeSlice'"
            " ? 'slices and neither capacityPercent nor slots'"
            " : 'neither capacityPercent nor slots nor slices')",
        ),
        rule(
            "!has(self.holders) || [self.holders].all(h, size(h) == 0 || [h.map(k, h[k]).sum()].all(given,"
            " has(self.capacityPercent) ? given <= self.capacityPercent"
            " : has(self.slices) ? given <= self.slices"
            " : self.mode == 'Exclusive' && size(h) == 1 && given == 100))",
            "the holders of a card have more than its capacity",
            message_expression="'card ' + self.id + (self.mode == 'MIG'"
            " ? ' is in mode MIG: name its holders in its slots, not in holders' : self.mode == 'Exclusive'"
            " ? ' is exclusive: it can have one holder with 100 percent' : self.mode == 'TimeSlice'"
            " ? ' is overcommitted: its holders have more time slices than it has'"
            " : ' is overcommitted: its holders have more than its capacityPercent')",
        ),
    )

    id: CardID
    """The inventoryID of the card. It stays the same when the driver's index or the UUID changes."""
    index: Annotated[int, Meta(ge=0, le=255), INT32, example(0)]
    """The index of the card on its node, as numbered by the driver."""
    mode: Annotated[CardMode, example("Percent")]
    """How the card is shared: Percent, Exclusive, MIG or TimeSlice."""
    epoch: Annotated[int, Meta(ge=0), INT64, example(3)]
    """A counter that grows with every change of mode or health, so that outdated decisions are detected."""
    healthy: bool = True
    """Whether new holders may be added. Existing holders keep their shares."""
    withheld: Annotated[WithheldCard, ATOMIC_MAP] | None = None
    """Why no new holders may be added. Unset if the card is healthy."""
    pool: Annotated[str, Meta(max_length=63), example("training")] = ""
    """The GPUPool that the card belongs to. Unset if it belongs to none."""
    capacity_percent: Annotated[Percent, example(100)] | None = None
    """The capacity of the card in percent. Set only in mode Percent."""
    min_percent: Annotated[Percent, example(10)] | None = None
    """The smallest share of a new holder in percent. Unset if it is 1. Existing holders keep their shares."""
    slots: _Slots | None = None
    """The MIG devices of the card and their holders. Set only in mode MIG."""
    slices: Annotated[int, Meta(ge=1, le=64), INT32, example(8)] | None = None
    """The capacity of the card in time slices. Set only in mode TimeSlice."""
    holders: Annotated[
        dict[str, Percent],
        Meta(max_length=64),
        ATOMIC_MAP,
        cel_rules(rule(f"self.all(k, k.matches({cel_string(_HOLDER_PATTERN)}))", _HOLDER_MESSAGE)),
        example({"ml/trainer-0/3f1c2a9e-5a55-4c38-9d0c-2f6d8f1f0a11": 50}),
    ] = field(default_factory=dict)
    """The holders: namespace/pod/uid to percent, or to the number of time slices in mode TimeSlice."""


class FreeCapacity(Wire, frozen=True, kw_only=True):
    """The free capacity of the healthy cards, by mode."""

    percent: Annotated[Count, example(120)] | None = None
    """The sum of the free percent of cards in mode Percent. Unset if there are no such cards."""
    cards: Annotated[Count, example(2)] | None = None
    """The number of cards without holders in modes Percent and Exclusive."""
    slots: Annotated[dict[str, Count], Meta(max_length=64), example({"1g.10gb": 3})] = field(
        default_factory=dict
    )
    """The number of free slots by MIG profile."""
    slices: Annotated[Count, example(4)] | None = None
    """The number of free time slices. Unset if no card is in mode TimeSlice."""


class CapacitySummary(Wire, frozen=True, kw_only=True):
    """What the cards and holders of the spec amount to. It is for people; no decision is based on it."""

    cards: Annotated[Count, example(8)]
    """The number of cards of the node, without retired ones."""
    holders: Annotated[Count, example(3)]
    """The number of pods and Reservations that hold shares of the cards."""
    free: FreeCapacity = FreeCapacity()
    """The free capacity of the healthy cards, by mode."""


def _all_hold(field: str) -> str:
    """Every key of the map holds a share of a card. Access to a card costs far more than access to a map."""
    return (
        f"!has(self.{field}) || [self.cards.filter(c, has(c.holders)).map(c, c.holders)].all(maps,"
        f" self.{field}.all(k, maps.exists(m, k in m)"
        " || self.cards.exists(c, has(c.slots) && c.slots.exists(s, has(s.holder) && s.holder == k))))"
    )


class NodeReservationSpec(Wire, frozen=True, kw_only=True):
    """The cards of the node and their holders, which are always written together."""

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            _all_hold("held"),
            "held names a holder that holds nothing on any card",
        ),
        rule(
            _all_hold("reservations"),
            "reservations names a holder that holds nothing on any card",
        ),
        rule(
            "[oldSelf.cards].all(olds, [olds.map(o, o.id)].all(ids, self.cards.all(c,"
            " [ids.indexOf(c.id)].all(i, i < 0 || [olds[i]].all(o, c.epoch == o.epoch"
            " ? c.mode == o.mode && c.healthy == o.healthy : c.epoch > o.epoch)))))",
            "the epoch of a card must not decrease, and must grow when its mode or health changes",
        ),
    )

    cards: Annotated[
        tuple[CardEntry, ...],
        Meta(max_length=32),
        cel_rules(
            rule(
                "[self.map(c, c.id)].all(ids, ids.all(id, ids.indexOf(id) == ids.lastIndexOf(id)))",
                "two cards have the same id",
            )
        ),
    ]
    """The GPU cards of the node."""
    held: Annotated[
        dict[str, Annotated[str, Meta(max_length=40)]],
        Meta(max_length=512),
        ATOMIC_MAP,
        cel_rules(
            rule(
                f"self.all(k, self[k] == '{NEVER}' || self[k].matches({cel_string(_TIME_PATTERN)}))",
                "a value of held must be an expiry time such as 2030-01-31T12:00:00Z, or never",
            )
        ),
        example({"ml/trainer-0/3f1c2a9e-5a55-4c38-9d0c-2f6d8f1f0a11": "2030-01-31T12:00:00Z"}),
    ] = field(default_factory=dict)
    """The expiry of each holder whose pod is not bound yet: a time, or never. All other holders are bound."""
    reservations: Annotated[
        dict[str, Annotated[str, Meta(min_length=1, max_length=253)]],
        Meta(max_length=512),
        ATOMIC_MAP,
        example({"default/my-pod": "example-reservation"}),
    ] = field(default_factory=dict)
    """The holders that hold through a Reservation: holder to the name of the Reservation in its namespace."""
    summary: Annotated[CapacitySummary, ATOMIC_MAP] | None = None
    """What cards and holders amount to. Croupier writes it together with them; leave it out."""


IDENTITY_FIELDS: Final = {CardEntry: ("id",), SlotEntry: ("id",)}
"""The fields that identify cards and slots when a change is merged into the ledger as it was read."""


class FindingEntry(Wire, frozen=True, kw_only=True):
    """A difference between the ledger, the pods and the node that the audit found."""

    kind: Annotated[FindingKind, example("Leak")] = field(name="class")
    """The class of the difference: Leak, Ghost, Overlap, WrongCard, Drift or Stranger."""
    message: Annotated[str, Meta(max_length=1024), example("ml/trainer-0 ended and still holds 50 percent")]
    """A human-readable description of the difference."""
    card: Annotated[str, Meta(max_length=253), example("node-1-0000-65-00-0")] = ""
    """The inventoryID of the affected card."""
    holder: Annotated[
        str, Meta(max_length=354), example("ml/trainer-0/3f1c2a9e-5a55-4c38-9d0c-2f6d8f1f0a11")
    ] = ""
    """The affected holder as namespace/pod/uid."""
    since: datetime | None = None
    """The time at which the difference was first found."""


class NodeReservationStatus(Wire, frozen=True, kw_only=True):
    """The result of the last audit. No decision is based on it."""

    observed_generation: ObservedGeneration | None = None
    """The metadata.generation whose cards and holders the audit compared, 0 before the first of them.

    It follows at the next audit.
    """
    findings: Annotated[tuple[FindingEntry, ...], Meta(max_length=256)] = ()
    """The differences that the audit found and did not repair."""
    last_audit_time: datetime | None = None
    """The time of the last audit that changed this status."""
    conditions: Conditions = ()
    """Conditions of the ledger. Each has a reason that programs may rely on."""


class NodeReservation(Wire, frozen=True, kw_only=True):
    """The ledger of one node: its cards and their holders. The object has the same name as the node."""

    spec: NodeReservationSpec
    """The cards and their holders."""
    metadata: ObjectMeta = ObjectMeta()
    status: NodeReservationStatus = NodeReservationStatus()
    """The result of the last audit. No decision is based on it."""
