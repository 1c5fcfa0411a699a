"""A card is repartitioned only if no pod has a part of it, and interrupted changes are finished or undone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.cards import catalogue
from croupier.core.model import mig
from croupier.core.model.gpu_card import CardHealth, GpuCard
from croupier.core.model.mig import MigDevice
from croupier.core.model.sharing import Sharing
from croupier.core.nodes import layout_plan as node_plan
from croupier.core.nodes.layout_plan import (
    CardHistory,
    ChangeBlockers,
    LayoutFailure,
    LayoutStep,
    LayoutTarget,
    PoolLayout,
)

MODEL = catalogue.find("SIM-70GB")
SMALL = (("1g.10gb", 7),)
MEDIUM = (("3g.30gb", 1), ("2g.20gb", 2))
ALONE = ChangeBlockers()
WITHDRAWN = ChangeBlockers(withdrawn=True)
NOW = 1000.0


ID = "node-1-0000-10-00-0"


def card(layout: mig.Layout = mig.WHOLE, *, enabled: bool | None = None, healthy: bool = True) -> GpuCard:
    slots = tuple(MigDevice(profile, start, 1) for profile, number in layout for start in range(number))
    return GpuCard(
        0,
        mig_enabled=bool(layout) if enabled is None else enabled,
        kinds=MODEL.kinds,
        slots=slots,
        health=CardHealth(healthy),
    )


def wanted(layout: mig.Layout = SMALL, source: str = "pool training") -> LayoutTarget:
    return LayoutTarget(layout, source)


def failure(target: str = "1g.10gb:7", again_at: float = NOW + 1) -> CardHistory:
    return CardHistory(failure=LayoutFailure(target, "the driver said no", 1, again_at))


REACHED = CardHistory(applied="1g.10gb:7")
UNFINISHED = CardHistory(unfinished=True)

WHAT_BECOMES = {
    "no target": (card(SMALL), None, CardHistory(), ALONE, "Applied"),
    "already applied": (card(SMALL), wanted(), CardHistory(), ChangeBlockers(holders=("ns/a",)), "Applied"),
    "free, no ledger": (card(), wanted(), CardHistory(), ALONE, "Changing"),
    "free, withdrawn": (card(), wanted(), CardHistory(), WITHDRAWN, "Changing"),
    "a pod has a part": (card(), wanted(), CardHistory(), ChangeBlockers(holders=("ns/a",)), "Waiting"),
    "the ledger still allocates it": (
        card(),
        wanted(),
        CardHistory(),
        ChangeBlockers(withdrawn=False),
        "Waiting",
    ),
    "withdrawn for something else": (card(), wanted(), CardHistory(), ChangeBlockers(True, False), "Waiting"),
    "withdrawn, but a pod has a part": (
        card(),
        wanted(),
        CardHistory(),
        ChangeBlockers(True, holders=("ns/a",)),
        "Waiting",
    ),
    "unknown kubelet assignments": (
        card(),
        wanted(),
        CardHistory(),
        ChangeBlockers(assignments_unknown=True),
        "Waiting",
    ),
    "unhealthy": (card(healthy=False), wanted(), CardHistory(), ALONE, "Waiting"),
    "drifted": (card(), wanted(), REACHED, ChangeBlockers(withdrawn=False), "Drifted"),
    "drifted and free": (card(), wanted(), REACHED, WITHDRAWN, "Changing"),
    "failed a moment ago": (card(), wanted(), failure(), ALONE, "Failed"),
    "failed long ago": (card(), wanted(), failure(again_at=NOW), ALONE, "Changing"),
    "failed, and held now": (
        card(),
        wanted(),
        failure(again_at=NOW),
        ChangeBlockers(holders=("ns/a",)),
        "Failed",
    ),
    "another target failed": (card(), wanted(), failure("3g.30gb:2"), ALONE, "Changing"),
    "whole, but MIG mode is on": (card(enabled=True), wanted(mig.WHOLE), CardHistory(), ALONE, "Changing"),
    "interrupted change, no target": (card(SMALL), None, UNFINISHED, ALONE, "Changing"),
    "interrupted change, held": (
        card(SMALL),
        None,
        UNFINISHED,
        ChangeBlockers(holders=("a",)),
        "Waiting",
    ),
}


@pytest.mark.parametrize(
    ("seen", "target", "history", "blockers", "state"), WHAT_BECOMES.values(), ids=WHAT_BECOMES
)
def test_the_step_of_a_card(seen, target, history, blockers, state):
    step = node_plan.step(ID, seen, target, history, blockers=blockers, now=NOW)

    assert step.state == state
    assert step.acts == (state == "Changing")
    assert bool(step.message) == (state != "Applied")


def test_the_message_names_the_blocking_pods():
    ties = ChangeBlockers(holders=tuple(f"ns/{name}" for name in "dbca"))

    message = node_plan.step(ID, card(SMALL), wanted(MEDIUM), CardHistory(), blockers=ties, now=NOW).message

    assert message == (
        "the layout is 1g.10gb:7, and pool training requires 2g.20gb:2,3g.30gb:1;"
        " waiting for ns/a, ns/b, ns/c and 1 more"
    )


def test_an_applied_target_is_remembered_and_a_new_target_is_not_drift():
    reached = node_plan.step(ID, card(SMALL), wanted(), CardHistory(), blockers=ALONE, now=NOW).history

    assert reached == REACHED
    held = ChangeBlockers(holders=("ns/a",))
    assert node_plan.step(ID, card(), wanted(), reached, blockers=held, now=NOW).state == "Drifted"
    assert node_plan.step(ID, card(), wanted(MEDIUM), reached, blockers=held, now=NOW).state == "Waiting"


@pytest.mark.parametrize(
    ("state", "applied"),
    {"Applied": "x", "Drifted": "x", "Waiting": "", "Changing": "", "Failed": ""}.items(),
)
def test_a_restarted_agent_knows_the_applied_target(state, applied):
    assert node_plan.history_from_report(state, "x").applied == applied


def test_repeated_failures_are_retried_with_backoff():
    memory, waits = CardHistory(), []
    for _ in range(8):
        memory = node_plan.with_failure(memory, "1g.10gb:7", "no", NOW)
        assert memory.failure is not None
        waits.append(memory.failure.again_at - NOW)

    assert waits[:3] == [30, 60, 120]
    assert waits[-1] == node_plan.LAST_RETRY
    other = node_plan.with_failure(memory, "whole", "no", NOW).failure
    assert other is not None
    assert other.tries == 1, "another target starts a new count"


POOLS = {
    "whole cards": (PoolLayout("p", frozenset(), Sharing("Exclusive")), "whole", ""),
    "time slices": (PoolLayout("p", frozenset(), Sharing("TimeSlice")), "whole", ""),
    "as many as fit": (PoolLayout("p", frozenset(), Sharing("MIG", profile="2g.20gb")), "2g.20gb:3", ""),
    "a layout": (PoolLayout("p", frozenset(), Sharing("MIG", layout=MEDIUM)), "2g.20gb:2,3g.30gb:1", ""),
    "unknown profile": (
        PoolLayout("p", frozenset(), Sharing("MIG", profile="9g.90gb")),
        "9g.90gb",
        "no MIG profile",
    ),
    "too many devices": (
        PoolLayout("p", frozenset(), Sharing("MIG", layout=(("3g.30gb", 3),))),
        "3g.30gb:3",
        "at most 2 of 3g.30gb",
    ),
}


@pytest.mark.parametrize(("pool", "target", "refused"), POOLS.values(), ids=POOLS)
def test_the_target_of_a_pool(pool, target, refused):
    found = node_plan.pool_target(card(), pool)

    assert found.layout_text == target
    assert refused in found.refused
    assert bool(found.refused) == bool(refused)


def test_a_pool_overrides_the_annotation_and_other_cards_stay():
    cards = {name: GpuCard(index, kinds=MODEL.kinds) for index, name in enumerate("abc")}
    pool = PoolLayout("training", frozenset("a"), Sharing("MIG", profile="1g.10gb"))

    found = node_plan.targets(cards, [pool], {0: MEDIUM, 1: MEDIUM})

    assert {name: target.layout_text for name, target in found.items()} == {
        "a": "1g.10gb:7",
        "b": "2g.20gb:2,3g.30gb:1",
    }


layouts = st.sampled_from([mig.WHOLE, SMALL, MEDIUM, (("3g.30gb", 2),)])
seen_cards = st.builds(
    card,
    layouts,
    enabled=st.booleans(),
    healthy=st.booleans(),
)
all_ties = st.builds(
    ChangeBlockers,
    withdrawn=st.sampled_from([None, True, False]),
    acknowledged=st.booleans(),
    holders=st.sampled_from([(), ("ns/a",)]),
    assignments_unknown=st.booleans(),
)
memories = st.builds(
    CardHistory,
    applied=st.sampled_from(["", "1g.10gb:7", "whole"]),
    failure=st.none()
    | st.builds(LayoutFailure, st.just("1g.10gb:7"), st.just("no"), st.just(1), st.floats(0, 2000)),
    unfinished=st.booleans(),
)
targets = st.none() | st.builds(wanted, layouts)


@given(seen_cards, targets, memories, all_ties)
def test_only_free_healthy_cards_with_another_layout_are_changed(seen, target, history, blockers):
    step = node_plan.step(ID, seen, target, history, blockers=blockers, now=NOW)

    if step.acts:
        assert step.state == "Changing"
        assert not blockers.holders
        assert not blockers.assignments_unknown
        assert blockers.withdrawn is None or (blockers.withdrawn and blockers.acknowledged)
        assert seen.health.healthy
        assert target is None or not node_plan.is_applied(seen, target.layout)
    elif target is not None and not node_plan.is_applied(seen, target.layout):
        assert step.state in ("Waiting", "Failed", "Drifted"), "this state keeps new holders off"


@given(seen_cards, targets, memories, all_ties)
def test_the_decision_is_idempotent(seen, target, history, blockers):
    once = node_plan.step(ID, seen, target, history, blockers=blockers, now=NOW)

    assert node_plan.step(ID, seen, target, once.history, blockers=blockers, now=NOW) == once


def test_an_acting_step_has_one_action():
    assert not LayoutStep("a").acts
    assert LayoutStep("a", recover=True).acts
