"""No row and no answer tells a name that the viewer may not see, and no amount changes."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from croupier.capacity import ledger_data, pod_explanation, reservation_data
from croupier.capacity.pod_explanation import ExplainResult
from croupier.capacity.snapshot import ClusterSnapshot
from croupier.core.explanation import explain, what_if
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card_request import CardRequest
from croupier.core.model.pod_view import PodView
from croupier.core.pods.scheduler_filters import NodeConstraints
from croupier.ui import redaction
from croupier.ui.rights import ALL, Rights
from croupier.ui.tables import PARTS, Delta, Tables, fold
from tests.core import ledger_builders
from tests.ui import redaction_worlds
from tests.ui.redaction_worlds import NAMESPACES, POOLS

EXAMPLES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TENANT = Rights(namespaces=frozenset({"apple"}), pools=frozenset({"red"}))
FREE, CAPACITY, HOLDERS, SLOTS = 7, 6, 8, 9


def is_own(holder: str, rights: Rights) -> bool:
    return rights.sees_namespace(holder.split("/", maxsplit=1)[0])


def cut(tables: Tables, rights: Rights) -> dict[str, dict[str, Any]]:
    """Both parts of the snapshot."""
    found: dict[str, dict[str, Any]] = {}
    for part in PARTS:
        seen = redaction.tables(tables.rows(part), rights, tables)
        found |= {table: dict(rows) for table, rows in seen.items()}
    return found


@EXAMPLES
@given(redaction_worlds.worlds(), redaction_worlds.rights())
def test_rows_tell_no_hidden_name(world, rights):
    seen = cut(redaction_worlds.filled(world), rights)
    if rights.whole_pools:
        del seen["pools"]  # a GPUPool may name namespaces to readers of GPUPools
    assert redaction_worlds.leaks(redaction_worlds.encoded(seen), rights) == []


@EXAMPLES
@given(redaction_worlds.worlds(), redaction_worlds.rights())
def test_visible_cards_keep_their_amounts(world, rights):
    tables = redaction_worlds.filled(world)
    whole = tables.rows("cards")["cards"]
    for key, card in cut(tables, rights).get("cards", {}).items():
        for index in (CAPACITY, FREE, HOLDERS, SLOTS):
            assert card[index] == whole[key][index]
    if rights.all_cards:
        assert cut(tables, rights)["cards"] == whole


@EXAMPLES
@given(redaction_worlds.worlds(), redaction_worlds.rights())
def test_a_viewer_gets_the_cards_of_own_pods_and_open_pools_only(world, rights):
    shown = set(cut(redaction_worlds.filled(world), rights).get("cards", {}))
    for ledger in world.ledgers.values():
        for card in ledger.cards:
            own = [holder for holder in Ledger("", (card,)).holders() if is_own(holder, rights)]
            visible = rights.all_cards or bool(own) or (bool(card.pool) and rights.sees_pool(card.pool))
            assert (card.id in shown) == visible


@EXAMPLES
@given(redaction_worlds.worlds())
def test_all_rights_change_nothing(world):
    tables = redaction_worlds.filled(world)
    assert cut(tables, ALL) == {**tables.rows("cards"), **tables.rows("names")}
    assert redaction.snapshot(world, ALL) is world


@EXAMPLES
@given(redaction_worlds.worlds(), redaction_worlds.worlds(), redaction_worlds.rights())
def test_deltas_lead_to_the_same_rows_as_a_snapshot_and_tell_no_hidden_name(before, after, rights):
    tables = redaction_worlds.filled(before)
    copy = cut(tables, rights)
    retire(tables, before, after)
    redaction_worlds.fill(tables, after)
    delta = tables.flush(1) or Delta(0, 0, {})
    changes = redaction.delta(delta.tables, delta.before, rights, tables)
    told = {table: rows for table, rows in changes.items() if table != "pools" or not rights.whole_pools}
    assert redaction_worlds.leaks(redaction_worlds.encoded(told), rights) == []
    fold(copy, changes)
    assert {table: rows for table, rows in copy.items() if rows} == {
        table: rows for table, rows in cut(tables, rights).items() if rows
    }


def retire(tables: Tables, before: ClusterSnapshot, after: ClusterSnapshot) -> None:
    for name, ledger in before.ledgers.items():
        later = after.ledgers[name].holders() if name in after.ledgers else set()
        for holder in ledger.holders() - later:
            tables.retire(name, holder)


def test_a_delta_does_not_name_cards_that_were_never_visible():
    """A deleted row consists of its key, and the key of a card names its node."""
    tables = Tables("test")
    card = ("secret-node", 0, 1, "blue", 3, 0, 100, 50, ((1, 50),), (), "H100", "", "", (), "")
    tables.put("cards", "secret-node-card", card)
    first = tables.flush(0)
    tables.put("cards", "secret-node-card", None)
    second = tables.flush(1)
    assert first is not None
    assert second is not None
    for delta in (first, second):
        assert redaction.delta(delta.tables, delta.before, TENANT, tables) == {}


@EXAMPLES
@given(redaction_worlds.worlds(), redaction_worlds.rights())
def test_a_snapshot_tells_no_hidden_name(world, rights):
    seen = redaction.snapshot(world, rights)
    pools = () if rights.whole_pools else seen.pools
    whole = [seen.nodes, seen.ledgers, seen.findings, seen.reservations, pools, seen.devices, seen.pods]
    details = [ledger_data.node_details(seen, name) for name in seen.ledgers]
    listed = [row for row in reservation_data.rows(seen) if not row.pod.startswith("_")]
    assert redaction_worlds.leaks(redaction_worlds.encoded([whole, details, listed]), rights) == []


@EXAMPLES
@given(redaction_worlds.worlds(), redaction_worlds.rights())
def test_a_snapshot_keeps_all_amounts(world, rights):
    seen = redaction.snapshot(world, rights)
    assert seen.recorded == world.recorded
    for name, ledger in world.ledgers.items():
        assert list(map(amounts, seen.ledgers[name].cards)) == list(map(amounts, ledger.cards))
        assert len(seen.ledgers[name].held) == len(ledger.held)
        assert len(seen.ledgers[name].reservations) == len(ledger.reservations)


def amounts(card: Any) -> Any:
    slots = [(slot.id, slot.profile, slot.start, slot.size, bool(slot.holder)) for slot in card.slots]
    return card.id, card.mode, card.capacity, card.free, card.healthy, list(card.holders.values()), slots


@st.composite
def own_pods(draw: st.DrawFn) -> tuple[ClusterSnapshot, Rights, PodView]:
    """A tenant with a pod that waits; it asks for no pool or for one that the tenant sees."""
    world, rights = draw(redaction_worlds.worlds()), draw(redaction_worlds.rights())
    own = [name for name in NAMESPACES if rights.sees_namespace(name)]
    if not own:
        rights = TENANT
        own = ["apple"]
    ledger = draw(st.sampled_from(sorted(world.ledgers.values(), key=lambda ledger: ledger.node)))
    wants: CardRequest = (ledger_builders.request_item(ledger, draw),)
    if not rights.all_cards and rights.pools is not None:
        rights = Rights(rights.everything, rights.cards, rights.namespaces, rights.pools | {wants[0].pool})
    key = f"{draw(st.sampled_from(own))}/mine"
    return world, rights, PodView(key, "uid-mine", wants=wants, marked=True)


@EXAMPLES
@given(own_pods(), st.sampled_from(ledger_builders.STRATEGIES))
def test_an_explanation_is_right_and_tells_no_hidden_name(case, strategy):
    world, rights, pod = case
    needs = NodeConstraints()
    whole = pod_explanation.scheduling_inputs(world, strategy)
    seen = pod_explanation.scheduling_inputs(redaction.snapshot(world, rights), strategy)
    assert explain.verdicts(pod, needs, seen) == explain.verdicts(pod, needs, whole)
    found = explain.explain(pod, needs, seen)
    assert found == explain.explain(pod, needs, whole)
    text = redaction_worlds.encoded(pod_explanation.as_data(ExplainResult(found, seen)))
    assert redaction_worlds.leaks(text, rights) == []


@EXAMPLES
@given(own_pods(), st.sampled_from(ledger_builders.STRATEGIES))
def test_what_if_is_right_and_tells_no_hidden_name(case, strategy):
    world, rights, pod = case
    whole = pod_explanation.scheduling_inputs(world, strategy)
    seen = pod_explanation.scheduling_inputs(redaction.snapshot(world, rights), strategy)
    played = what_if.simulate(pod, NodeConstraints(), seen, 3)
    right = what_if.simulate(pod, NodeConstraints(), whole, 3)
    assert (played.places, played.stopped) == (right.places, right.stopped)
    text = redaction_worlds.encoded(pod_explanation.what_if_data(pod, played, seen, 3))
    assert redaction_worlds.leaks(text, rights) == []


@EXAMPLES
@given(redaction_worlds.worlds(), redaction_worlds.rights())
def test_names_of_hidden_pools_are_replaced(world, rights):
    """Unless the viewer may list gpudevices, which name their pools, or has pods on cards of the pool."""
    if rights.all_cards:
        return
    named = {
        card.pool
        for ledger in world.ledgers.values()
        for card in ledger.cards
        if any(is_own(holder, rights) for holder in Ledger("", (card,)).holders())
    }
    ledgers = redaction.snapshot(world, rights).ledgers.values()
    shown = {card.pool for ledger in ledgers for card in ledger.cards}.intersection(POOLS)
    assert {pool for pool in shown if not rights.sees_pool(pool)} <= named


@pytest.mark.parametrize(
    ("table", "value", "rights", "expected"),
    [
        pytest.param("unknown", {}, Rights(True, True, None, None), {}, id="everything"),
        pytest.param(
            "unknown", {}, Rights(cards=True, namespaces=None, pools=None), None, id="unknown table"
        ),
        pytest.param("findings", [{}], Rights(cards=True, namespaces=None, pools=None), None, id="findings"),
        pytest.param("market", {"factor": 1}, Rights(cards=True), {"factor": 1}, id="market"),
        pytest.param("market", {"factor": 1}, TENANT, None, id="market of a tenant"),
        pytest.param(
            "holders", ["apple/x/uid", 1, 0, ""], TENANT, ["apple/x/uid", 1, 0, ""], id="own holder"
        ),
        pytest.param("holders", ["pear/x/uid", 1, 0, ""], TENANT, None, id="other holder"),
        pytest.param("holders", ["", 1, 0, ""], TENANT, None, id="unknown holder"),
        pytest.param("cards", None, TENANT, None, id="deleted"),
    ],
)
def test_single_rows(table, value, rights, expected):
    assert redaction.row(table, "key", value, rights, Tables("test")) == expected
