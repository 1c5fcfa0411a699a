"""NodeReservation: the ledger of one node.

What its cards can give and who holds it are in one object, so that one guarded write
commits both, and the rules here let the API server itself refuse an overcommitted one.
A write costs by the number of fields, hence the shape: one entry per holder and card,
and what only few holders have (an expiry, a Reservation) kept apart
(docs/decisions/0002-shape-of-the-ledger.md).
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, field

from croupier.api.meta import MIG_PROFILE, MIG_PROFILE_MESSAGE, Conditions, ObjectMeta
from croupier.api.mps import holder
from croupier.api.mps.holder import HOLDER_MESSAGE, HOLDER_PATTERN, NEVER, Holder
from croupier.api.mps.reservation import CardID, Percent
from croupier.api.wire import ATOMIC_MAP, INT32, INT64, Rule, Wire, checked, quoted, rule, schema

CardMode: TypeAlias = Literal["Percent", "Exclusive", "MIG", "TimeSlice"]
Count: TypeAlias = Annotated[int, Meta(ge=0), INT32]
FindingClass: TypeAlias = Literal["Leak", "Ghost", "Overlap", "WrongCard", "Drift"]

_MOMENT: Final = (
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"
)


class Slot(Wire, frozen=True, kw_only=True):
    """One MIG device a card is cut into, and its holder."""

    id: Annotated[str, Meta(min_length=1, max_length=63)]
    """Name of the slot, unique on its card."""
    profile: Annotated[str, Meta(max_length=32)]
    """The MIG profile, such as 1g.10gb."""
    start: Annotated[int, Meta(ge=0, le=7), INT32]
    """The first memory slice it occupies."""
    size: Annotated[int, Meta(ge=1, le=8), INT32]
    """How many memory slices it occupies."""
    holder: Annotated[str, Meta(max_length=354)] = ""
    """Who holds the slot, as namespace/pod/uid; free when unset."""


_COVERED: Final = "[0, 1, 2, 3, 4, 5, 6, 7].filter(i, spans.exists(span, span[0] <= i && i < span[1])).size()"
_Slots: TypeAlias = Annotated[
    tuple[Slot, ...],
    Meta(max_length=8),
    schema(x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["id"]),
    checked(
        rule(
            f"[self.map(s, [s.start, s.start + s.size])].all(spans, self.map(s, s.size).sum() == {_COVERED})",
            "slots overlap or end beyond memory slice 7",
        ),
        rule(
            f"self.all(s, s.profile.matches({quoted(MIG_PROFILE)}))",
            f"the profile of a slot {MIG_PROFILE_MESSAGE}",
        ),
        rule(f"self.all(s, !has(s.holder) || s.holder.matches({quoted(HOLDER_PATTERN)}))", HOLDER_MESSAGE),
    ),
]
"""Rules stand on the list, not on each slot: every rule that is started costs. Ids are unique natively."""


class Card(Wire, frozen=True, kw_only=True):
    """One card: what it can give, and who holds how much of it."""

    # The rules look each field up once: in an object that costs the API server more than any arithmetic.

    rules: ClassVar[tuple[Rule, ...]] = (
        rule(
            "[self.mode].all(m, has(self.capacityPercent) == (m == 'Percent')"
            " && has(self.slots) == (m == 'MIG') && has(self.slices) == (m == 'TimeSlice'))",
            "a card has capacityPercent in mode Percent, slots in MIG, slices in TimeSlice, and nothing else",
            says="'card ' + self.id + ' is in mode ' + self.mode + ': it must have '"
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
            "the holders of a card have more than it can give",
            says="'card ' + self.id + (self.mode == 'MIG'"
            " ? ' is in mode MIG: name its holders in its slots, not in holders' : self.mode == 'Exclusive'"
            " ? ' is exclusive: it has one holder, who has 100 percent of it' : self.mode == 'TimeSlice'"
            " ? ' is overcommitted: its holders have more time slices than it has'"
            " : ' is overcommitted: its holders have more than its capacityPercent')",
        ),
    )

    id: CardID
    """The card's inventoryID: node and PCI address, stable when index or UUID change."""
    index: Annotated[int, Meta(ge=0, le=255), INT32]
    """The number the driver gives it on its node."""
    mode: CardMode
    """How the card is shared."""
    epoch: Annotated[int, Meta(ge=0), INT64]
    """Raised at every change of mode or health, so that an old decision is recognised as such."""
    healthy: bool = True
    """Whether new holders may be added; those it has stay."""
    pool: Annotated[str, Meta(max_length=63)] = ""
    """The GPUPool it is assigned to; none when unset."""
    capacity_percent: Percent | None = None
    """What it can give in mode Percent."""
    slots: _Slots | None = None
    """What it is cut into in mode MIG, and who holds which slot."""
    slices: Annotated[int, Meta(ge=1, le=64), INT32] | None = None
    """What it can give in mode TimeSlice."""
    holders: Annotated[
        dict[str, Percent],
        Meta(max_length=64),
        ATOMIC_MAP,
        checked(rule(f"self.all(k, k.matches({quoted(HOLDER_PATTERN)}))", HOLDER_MESSAGE)),
    ] = field(default_factory=dict)
    """Who holds how much of it: namespace/pod/uid to percent, or to time slices in mode TimeSlice."""


def _all_hold(field: str) -> str:
    """Every key of a map holds something. A look into a card costs far more than one into a map."""
    return (
        f"!has(self.{field}) || [self.cards.filter(c, has(c.holders)).map(c, c.holders)].all(maps,"
        f" self.{field}.all(k, maps.exists(m, k in m)"
        " || self.cards.exists(c, has(c.slots) && c.slots.exists(s, has(s.holder) && s.holder == k))))"
    )


class NodeReservationSpec(Wire, frozen=True, kw_only=True):
    """The cards of the node and their holders, always written together."""

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
            "a card's epoch never goes back, and is raised when its mode or health changes",
        ),
    )

    cards: Annotated[
        tuple[Card, ...],
        Meta(max_length=32),
        checked(
            rule(
                "[self.map(c, c.id)].all(ids, ids.all(id, ids.indexOf(id) == ids.lastIndexOf(id)))",
                "two cards have the same id",
            )
        ),
    ]
    """The cards of the node."""
    held: Annotated[
        dict[str, Annotated[str, Meta(max_length=40)]],
        Meta(max_length=512),
        ATOMIC_MAP,
        checked(
            rule(
                f"self.all(k, self[k] == '{NEVER}' || self[k].matches({quoted(_MOMENT)}))",
                "held says until when, as 2030-01-31T12:00:00Z, or never",
            )
        ),
    ] = field(default_factory=dict)
    """Holders whose pod is not bound yet (state Held): until when, or never. All others are Bound."""
    reservations: Annotated[
        dict[str, Annotated[str, Meta(min_length=1, max_length=253)]], Meta(max_length=512), ATOMIC_MAP
    ] = field(default_factory=dict)
    """Holders that hold because of a Reservation in the pod's namespace: its name."""

    def holders_of(self, card: Card) -> Iterator[Holder]:
        """Every holder of the card with all that is known of it."""
        for key, share in card.holders.items():
            yield self._holder(key, percent=share if card.slices is None else None, card=card)
        slots: dict[str, tuple[str, ...]] = {}
        for slot in card.slots or ():
            if slot.holder:
                slots[slot.holder] = (*slots.get(slot.holder, ()), slot.id)
        for key, ids in slots.items():
            yield self._holder(key, slots=ids, card=card)

    def _holder(
        self, key: str, *, card: Card, percent: int | None = None, slots: tuple[str, ...] = ()
    ) -> Holder:
        pod_key, pod_uid = holder.split(key)
        expiry = self.held.get(key, "")
        return Holder(
            pod_key=pod_key,
            pod_uid=pod_uid,
            reservation=self.reservations.get(key, ""),
            percent=percent,
            slices=card.holders.get(key) if card.slices is not None else None,
            slots=slots,
            state="Held" if expiry else "Bound",
            expires_at=None if expiry in ("", NEVER) else datetime.fromisoformat(expiry),
        )


SAME: Final = {Card: ("id",), Slot: ("id",)}
"""What tells cards and slots apart when changes are laid over a ledger as it was read (`kube.draft`)."""


class Free(Wire, frozen=True, kw_only=True):
    """What the healthy cards can still give, by mode."""

    percent: Count | None = None
    """Percent left on cards in mode Percent, summed; unset when there are none."""
    cards: Count | None = None
    """Cards that nobody holds anything of, in modes Percent and Exclusive."""
    slots: Annotated[dict[str, Count], Meta(max_length=64)] = field(default_factory=dict)
    """Free slots per MIG profile."""
    slices: Count | None = None
    """Time slices left; unset when no card is shared by time."""


class Finding(Wire, frozen=True, kw_only=True):
    """A difference between the ledger, the pods and the node that the audit saw."""

    kind: FindingClass = field(name="class")
    """What is wrong."""
    message: Annotated[str, Meta(max_length=1024)]
    """What is wrong, in a sentence."""
    card: Annotated[str, Meta(max_length=253)] = ""
    """The card it concerns."""
    holder: Annotated[str, Meta(max_length=354)] = ""
    """The holder it concerns."""
    since: datetime | None = None
    """When it was first seen."""


class NodeReservationStatus(Wire, frozen=True, kw_only=True):
    """Derived from the spec and from the node; nobody decides by it."""

    cards: Count | None = None
    """How many cards the node has."""
    holders: Count | None = None
    """How many pods hold something."""
    free: Free = Free()
    """What is left."""
    findings: Annotated[tuple[Finding, ...], Meta(max_length=256)] = ()
    """What the audit found and did not repair."""
    last_audit_time: datetime | None = None
    """When the audit last looked."""
    conditions: Conditions = ()
    """Details, each with a reason programs may rely on."""


class NodeReservation(Wire, frozen=True, kw_only=True):
    """The ledger of one node, named like it: what its cards can give and who holds it."""

    spec: NodeReservationSpec
    """The cards and their holders."""
    metadata: ObjectMeta = ObjectMeta()
    status: NodeReservationStatus = NodeReservationStatus()
    """What follows from it."""
