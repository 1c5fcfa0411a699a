"""Builders and hypothesis strategies for one node with cards, pools and a ledger, as previews read them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from croupier.core.explanation import effects, fleet
from croupier.core.explanation.card_outcomes import CardsAction, CardVerb
from croupier.core.explanation.effects import CardEffect
from croupier.core.explanation.fleet import Fleet, FleetCard, FleetNode, FleetPool
from croupier.core.ledger import change_layout, reported_cards
from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.ledger.reported_cards import NodeCardReport, ReportedCard, ReportedPool
from croupier.core.model.card import CardGrant, Grant, LedgerCard, MigSlot
from croupier.core.model.sharing import Sharing
from croupier.core.model.withheld import Withheld
from croupier.core.pools.assignment import MANUAL_APPROVAL, Approval, AssignableCard, AssignmentPool
from croupier.core.pools.capacity import Capacity
from croupier.core.pools.mig_support import MigSupport
from croupier.core.pools.selection import CardFilter, CardSelector, CardTraits

NODE = "node-1"
WHOLE, SHARED, SLICED = Sharing("Exclusive"), Sharing("MPS"), Sharing("TimeSlice", slices=4)
SMALL = Sharing("MIG", profile="1g.10gb")
FITS = {"1g.10gb": 7, "3g.40gb": 2}
UNITS = {"Exclusive": "Card", "MPS": "Percent", "TimeSlice": "TimeSlice", "MIG": "MIG"}
JOB = "team/job/u1"


def card(index: int = 0, *, pool: str = "", assigned: str | None = None, **fields: Any) -> FleetCard:
    """A card that is settled: `assigned`, its annotation, is its pool unless told."""
    reported = {name: fields.pop(name) for name in ("cut", "fits", "ahead") if name in fields}
    fits = reported.get("fits", {})
    profiles = frozenset(fields.pop("profiles", fits))
    mig = MigSupport(fields.pop("known_profiles", False), profiles, fits)
    obstacle = fields.pop("obstacle", "")
    name, drain = f"card-{index}", fields.get("drain")
    excluded = fields.get("retired", False) or not fields.get("managed", True)
    assignable = AssignableCard(
        CardTraits(name, index, profiles=profiles),
        annotation=pool if assigned is None else assigned,
        pool=pool,
        drained=drain is not None,
        excluded=excluded,
        obstacle=obstacle,
        mig=mig,
    )
    plain = FleetCard(assignable, ReportedCard(name, index), **fields)
    faulted = bool(plain.defect)
    seen = ReportedCard(
        name, index, pool, faulted=faulted, unmanaged=not plain.managed, withheld=plain.withheld, **reported
    )
    return replace(plain, reported=seen)


def pool(name: str = "a", sharing: Sharing = WHOLE, *, withheld: str = "", **fields: Any) -> FleetPool:
    """A pool; `fields` are those of its assignment, or booked and closed."""
    why = Withheld("Changing", withheld) if withheld else None
    own = {field: fields.pop(field) for field in ("booked", "closed") if field in fields}
    rules = AssignmentPool(name, resource=f"gpu.deckhouse.io/{name}", sharing=sharing, **fields)
    return FleetPool(rules, ReportedPool(sharing, why), UNITS[sharing.mode], **own)


def only(*indexes: int) -> CardSelector:
    """A deviceSelector of these cards."""
    return CardSelector(CardFilter(ids=frozenset(f"card-{index}" for index in indexes) | {"-"}))


def node(
    cards: Iterable[FleetCard], pools: Iterable[FleetPool], held: Mapping[str, Grant], name: str = NODE
) -> FleetNode:
    """A node whose ledger has the cards, given to the holders before anything was withheld."""
    listed = list(cards)
    reports = {one.name: one.reported for one in pools}
    opened = {one: ReportedPool(report.sharing) for one, report in reports.items()}
    usable = [replace(each.reported, withheld=None, unmanaged=False, faulted=False) for each in listed]
    ledger = Ledger(name, _ledger_cards(name, usable, opened))
    for holder, grant in held.items():
        given = ledger_ops.give(ledger, holder, grant, HoldTerms(bound=True))
        assert isinstance(given, Ledger), given
        ledger = given
    now = _ledger_cards(name, [each.reported for each in listed], reports)
    return FleetNode(name, change_layout.apply_report(ledger, now), {each.id: each for each in listed})


def _ledger_cards(
    name: str, devices: Iterable[ReportedCard], pools: Mapping[str, ReportedPool]
) -> tuple[LedgerCard, ...]:
    return reported_cards.from_report(NodeCardReport(name, devices=tuple(devices), pools=pools)).cards


def world(
    *cards: FleetCard,
    pools: Iterable[FleetPool] = (pool(),),
    held: Mapping[str, Grant] | None = None,
    approval: Approval = MANUAL_APPROVAL,
    elsewhere: Mapping[str, Capacity] | None = None,
) -> Fleet:
    listed = list(pools)
    return Fleet(
        {NODE: node(cards, listed, held or {})},
        {one.name: one for one in listed},
        elsewhere or {},
        approval,
    )


def share(index: int = 0, amount: int = 100) -> Grant:
    return (CardGrant(f"card-{index}", amount),)


def held_by_job(index: int = 0, amount: int = 100) -> dict[str, Grant]:
    return {JOB: share(index, amount)}


def act(verb: CardVerb, *indexes: int, pool: str = "", reason: str = "") -> CardsAction:
    return CardsAction(verb, tuple(f"card-{index}" for index in indexes or (0,)), pool, reason)


def effect(seen: Fleet, action: CardsAction) -> CardEffect:
    """The effect on the only card of the action."""
    (found,) = effects.preview(seen, action).cards
    return found


def after(seen: Fleet, action: CardsAction, freed: Iterable[str] = ()) -> dict[str, FleetCard]:
    """The cards of the node when the controllers have reacted, and when the holders of `freed` have ended."""
    here = seen.nodes[NODE]
    written = {
        name: effects.applied(each, action) if name in action.cards else each
        for name, each in here.cards.items()
    }
    return dict(fleet.settle(seen, here, written, set(freed)).cards)


def done(seen: Fleet, action: CardsAction) -> Fleet:
    """The fleet when the controllers have reacted to the action and have nothing left to do."""
    return _with_cards(seen, after(seen, action))


def settled(seen: Fleet) -> Fleet:
    here = seen.nodes[NODE]
    return _with_cards(seen, fleet.settle(seen, here, here.cards).cards)


def _with_cards(seen: Fleet, cards: Mapping[str, FleetCard]) -> Fleet:
    here = seen.nodes[NODE]
    ledger = fleet.ledger_after(seen, here, cards)
    known = {name: _seen(seen, each, ledger) for name, each in cards.items()}
    return replace(seen, nodes={NODE: replace(here, ledger=ledger, cards=known)})


def _seen(seen: Fleet, card_: FleetCard, ledger: Ledger) -> FleetCard:
    """The card with the report of its new pool."""
    report, entry = card_.reported, ledger.card(card_.id)
    if card_.pool and entry is not None and entry.pool == card_.pool:
        report = fleet.with_sharing(report, seen.pools[card_.pool].reported.sharing)
    report = replace(report, pool=card_.pool, unmanaged=not card_.managed, withheld=card_.withheld)
    return replace(card_, reported=report)


VERBS: tuple[CardVerb, ...] = ("assign", "unassign", "drain", "undrain", "retire", "unretire")
HOLDERS = ("team/a/u1", "team/b/u2", "hidden/_1", "hidden/_2")
_POOLS = {
    "a": st.sampled_from([WHOLE, SHARED, SMALL]),
    "b": st.sampled_from([SHARED, SLICED]),
}
_RULES = st.fixed_dictionaries(
    {},
    optional={
        "auto_assign_all": st.booleans(),
        "max_per_node": st.integers(1, 2),
        "devices": st.sampled_from([only(0, 1), only(1, 2)]),
        "booked": st.integers(0, 2),
        "withheld": st.sampled_from(["", "its pool is in Maintenance"]),
    },
)
_CUTS: tuple[tuple[MigSlot, ...] | None, ...] = (None, (), ())
_STATES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"drain": "by hand"},
    {"retired": True},
    {"managed": False},
    {"defect": "it is faulted", "obstacle": "it is faulted"},
    {"drain": "broken fan"},
)


@st.composite
def fleets(draw: st.DrawFn, /, **rules: Any) -> Fleet:
    """A settled fleet of up to three cards, pools a and b, and holders of cards, of which some may leave."""
    pools = [pool(name, draw(modes), **{**draw(_RULES), **rules}) for name, modes in _POOLS.items()]
    cards = []
    for index in range(draw(st.integers(1, 3))):
        state = draw(st.sampled_from(_STATES))
        assigned = "" if "retired" in state or "managed" in state else draw(st.sampled_from(["", "a", "b"]))
        cut = draw(st.sampled_from(_CUTS))
        cards.append(card(index, assigned=assigned, fits=FITS, known_profiles=True, cut=cut, **state))
    joined = settled(world(*cards, pools=pools))
    ledger = joined.nodes[NODE].ledger
    for holder in draw(st.lists(st.sampled_from(HOLDERS), unique=True, max_size=3)):
        index = draw(st.integers(0, len(cards) - 1))
        grant = _part(ledger.card(f"card-{index}"))
        given = ledger_ops.give(ledger, holder, grant, HoldTerms(bound=True)) if grant else None
        ledger = given if isinstance(given, Ledger) else ledger
    here = replace(joined.nodes[NODE], ledger=ledger)
    seen = replace(joined, nodes={NODE: here})
    return done(seen, draw(actions(seen, ("unassign", "drain", "retire")))) if draw(st.booleans()) else seen


def _part(entry: LedgerCard | None) -> Grant:
    """A part of the card that fits its mode."""
    if entry is None or not entry.healthy:
        return ()
    if entry.mode == "MIG":
        free = entry.free_slots()
        return (CardGrant(entry.id, slots=(free[0].id,)),) if free else ()
    return (CardGrant(entry.id, {"Exclusive": 100, "TimeSlice": 1}.get(entry.mode, 40)),)


@st.composite
def actions(draw: st.DrawFn, seen: Fleet, verbs: tuple[CardVerb, ...] = VERBS) -> CardsAction:
    names = sorted(seen.nodes[NODE].cards)
    verb = draw(st.sampled_from(verbs))
    cards = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    target = draw(st.sampled_from(sorted(seen.pools))) if verb == "assign" else ""
    return CardsAction(verb, tuple(cards), target, draw(st.sampled_from(["", "broken fan"])))
