"""A preview changes no holder, and its amounts, notes and outcomes are those of the ledgers it returns."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.core.explanation import effects, fleet
from croupier.core.explanation.fleet import Fleet
from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import Ledger
from croupier.core.pools.capacity import Capacity
from tests.core.explanation import fleet_worlds as worlds
from tests.core.explanation.fleet_worlds import NODE, act

FEW = settings(max_examples=100)


@given(st.data())
@FEW
def test_no_pod_loses_a_share(data):
    seen = data.draw(worlds.fleets())
    before = seen.nodes[NODE].ledger

    found = effects.preview(seen, data.draw(worlds.actions(seen)))

    for ledger in found.ledgers.values():
        assert {holder: ledger.grant(holder) for holder in before.holders()} == grants(before)
        assert ledger.holders() == before.holders()
        assert (ledger.held, ledger.reservations) == (before.held, before.reservations)
        assert ledger_ops.invariant_violations(ledger) == []


def grants(ledger: Ledger):
    return {holder: ledger.grant(holder) for holder in ledger.holders()}


@given(st.data())
@FEW
def test_the_ledgers_agree_with_the_outcomes(data):
    """Without automatic pools: a card joins or leaves in the ledger exactly if its outcome is `now`."""
    seen = data.draw(worlds.fleets(auto_assign_all=False))
    action = data.draw(worlds.actions(seen, ("assign", "unassign")))
    before = seen.nodes[NODE]

    found = effects.preview(seen, action)

    later = ledger_later(seen, action)
    for one in found.cards:
        was, now = pool_in(before.ledger, one.card), pool_in(found.ledgers.get(NODE, before.ledger), one.card)
        two_steps = "two steps" in one.sentence
        if one.outcome == "now":
            assert now == action.pool
        else:
            assert now == was
        if one.outcome == "later" and not two_steps:
            assert pool_in(later, one.card) == action.pool
        leaving = before.cards[one.card].excluded or before.cards[one.card].card.annotation != was
        if one.outcome in ("declined", "unchanged") and not leaving:
            assert pool_in(later, one.card) == was


def pool_in(ledger: Ledger, name: str) -> str:
    """The pool of the card; empty for none, or if the ledger does not have the card any more."""
    entry = ledger.card(name)
    return "" if entry is None else entry.pool


def ledger_later(seen: Fleet, action) -> Ledger:
    cards = worlds.after(seen, action, action.cards)
    return fleet.ledger_after(seen, seen.nodes[NODE], cards, action.cards)


@given(st.data())
@FEW
def test_pool_amounts_are_those_of_the_cards_in_the_ledgers(data):
    seen = data.draw(worlds.fleets())
    action = replace(data.draw(worlds.actions(seen)), cards=tuple(seen.nodes[NODE].cards))
    here = seen.nodes[NODE]

    found = effects.preview(seen, action)

    now, later = worlds.after(seen, action), worlds.after(seen, action, action.cards)
    for one in found.pools:
        assert one.before == recount(seen, one.pool, here.cards, here.ledger)
        assert one.after == recount(seen, one.pool, now, found.ledgers.get(NODE, here.ledger))
        assert one.later == recount(seen, one.pool, later, ledger_later(seen, action))
    for name in seen.pools.keys() - {one.pool for one in found.pools}:
        unlisted = recount(seen, name, now, found.ledgers.get(NODE, here.ledger))
        assert unlisted == recount(seen, name, here.cards, here.ledger)


def recount(seen: Fleet, name: str, cards, ledger: Ledger) -> Capacity:
    """The units of the entries: all of a card that gives units, and only the held ones of another."""
    total = used = 0
    for entry in (each for each in ledger.cards if each.pool == name):
        units = {"MIG": len(entry.slots), "Exclusive": 1}.get(entry.mode, entry.capacity)
        shares = entry.used if entry.mode != "Exclusive" else len(entry.holders)
        held = shares + sum(1 for slot in entry.slots if slot.holder)
        used += held
        total += units if entry.healthy and not cards[entry.id].idle_reason else held
    return Capacity(total, used, seen.pools[name].booked)


@given(st.data())
@FEW
def test_other_cards_change_only_with_a_note(data):
    seen = data.draw(worlds.fleets())
    action = data.draw(worlds.actions(seen))

    found = effects.preview(seen, action)

    before, after = seen.nodes[NODE].ledger, found.ledgers.get(NODE, seen.nodes[NODE].ledger)
    changed = {name for name in seen.nodes[NODE].cards if before.card(name) != after.card(name)}
    for name in changed - set(action.cards):
        assert any(note.startswith(f"card {name} ") for note in found.notes)
    assert not any(note.startswith(f"card {name} ") for note in found.notes for name in action.cards)


@given(st.data())
@FEW
def test_what_is_done_is_unchanged(data):
    seen = data.draw(worlds.fleets())
    action = data.draw(worlds.actions(seen))
    first = effects.preview(seen, action)

    again = effects.preview(worlds.done(seen, action), action)

    for one, two in zip(first.cards, again.cards, strict=True):
        if (action.verb, one.outcome) == ("unassign", "now") and "takes it automatically" in one.sentence:
            assert two.outcome == "declined", "the other pool would take the card again"
        elif one.outcome == "now" or (one.outcome == "later" and action.verb == "drain"):
            assert two.outcome == "unchanged"
    assert (again.ledgers, again.notes) == ({}, ())
    assert all(one.before == one.after for one in again.pools)


@given(st.data())
@FEW
def test_undrain_reverts_a_drain(data):
    seen = data.draw(worlds.fleets())
    here = seen.nodes[NODE]
    names = tuple(name for name, each in here.cards.items() if each.drain is None)
    drained = worlds.done(seen, replace(act("drain"), cards=names))

    back = worlds.done(drained, replace(act("undrain"), cards=names)).nodes[NODE]

    assert back.cards == here.cards
    assert [replace(each, epoch=0) for each in back.ledger.cards] == [
        replace(each, epoch=0) for each in here.ledger.cards
    ]


@given(st.data())
@FEW
def test_hidden_holders_are_never_named(data):
    seen = data.draw(worlds.fleets())

    found = effects.preview(seen, data.draw(worlds.actions(seen)))

    sentences = (*(one.sentence for one in found.cards), *found.notes)
    assert not any("hidden" in sentence for sentence in sentences)
