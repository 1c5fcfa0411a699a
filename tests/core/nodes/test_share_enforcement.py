"""What the status of a card says about the enforcement of its shares."""

from dataclasses import replace

import pytest

from croupier.core.model import enforcement as kinds
from croupier.core.model.enforcement import Enforcement
from croupier.core.model.sharing import Sharing
from croupier.core.nodes import share_enforcement
from croupier.core.nodes.mps_daemon import Act, Off, Ready, Withhold
from croupier.core.nodes.plugin_devices import NodeCard, PoolMembership
from tests.core.kubelet_env import partitioned, pooled, whole


def pool(enforcement: Enforcement) -> NodeCard:
    return replace(pooled(), pool=PoolMembership("blue", Sharing("MPS", enforcement=enforcement)))


BY_MODE = {
    "MIG devices, by the hardware": (partitioned(), "MIG", True),
    "time slices, by nothing": (pooled(sharing="TimeSlice"), "None", True),
    "a pool that chose nothing": (pool("None"), "None", True),
    "HAMi-core without its files": (pool("HAMiCore"), "HAMiCore", False),
}


@pytest.mark.parametrize(("card", "by", "ready"), BY_MODE.values(), ids=BY_MODE)
def test_what_enforces_shares_without_a_daemon(card, by, ready):
    state = share_enforcement.by_mode(card, "libvgpu.so is missing")

    assert state is not None
    assert (state.by, state.ready) == (by, ready)
    assert state.message


def test_a_pool_of_whole_cards_has_nothing_to_enforce():
    assert share_enforcement.by_mode(pooled(sharing="Exclusive"), "") is None
    assert share_enforcement.simulated(pooled(sharing="Exclusive")) is None


def test_simulated_cards_say_that_nothing_is_enforced():
    assert share_enforcement.simulated(pool("MPS")) == kinds.SIMULATED


DECISIONS = {
    "its daemon answers": (Ready(), True, True),
    "its daemon is starting": (Withhold("starting"), False, True),
    "its daemon failed": (Withhold("failed", failed=True), False, False),
    "no daemon yet": (Off(), False, True),
    "a step follows": (Act("Start"), False, True),
}


@pytest.mark.parametrize(("decision", "pooled_ready", "free_ready"), DECISIONS.values(), ids=DECISIONS)
def test_a_pool_waits_for_its_daemon_and_a_card_without_a_pool_starts_it_on_demand(
    decision, pooled_ready, free_ready
):
    states = [
        share_enforcement.with_daemon(card, decision, static=False, owned=False)
        for card in (pool("MPS"), whole())
    ]

    assert [state.ready for state in states] == [pooled_ready, free_ready]
    assert {state.by for state in states} == {"MPSClient"}
