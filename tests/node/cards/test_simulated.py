"""Simulated cards are as strict as a driver, keep their partitioning, and have faults on demand."""

import asyncio

import pytest

from croupier.core.cards import catalogue
from croupier.core.model import mig
from croupier.core.model.mig import MigPlacement
from croupier.node.cards import simulated_spec
from croupier.node.cards.card_driver import CardDriver, CardError, HeldDevice
from tests.node.simulated_env import FIRST, SECOND, SimulatedCardsEnv, observed_card


@pytest.fixture
def env(tmp_path):
    return SimulatedCardsEnv(tmp_path)


async def cut(cards: CardDriver, address: str, *pieces: MigPlacement) -> list[str]:
    await cards.enable_mig(address, True)
    return [await cards.create(address, piece) for piece in pieces]


@pytest.mark.parametrize("model", catalogue.MODELS, ids=lambda model: model.name)
async def test_every_model_of_the_catalogue_can_be_simulated(tmp_path, model):
    cards = await SimulatedCardsEnv(tmp_path, plan=f"{model.name}:3").start()

    sighting = await cards.inspect()

    assert [card.index for card in sighting.cards] == [0, 1, 2]
    assert {card.product for card in sighting.cards} == {model.product}
    assert {card.mig_capable for card in sighting.cards} == {model.mig_capable}
    assert len({card.uuid for card in sighting.cards}) == 3
    assert all(card.health.healthy and not card.slots for card in sighting.cards)


async def test_a_file_can_mix_models_and_partition_them(tmp_path):
    plan = tmp_path / "cards.yaml"
    plan.write_text(
        'driver: "1.2"\ncards:\n- {model: h100}\n- {model: A30, count: 2, cut: "1g.6gb:2,2g.12gb:1"}\n'
    )

    sighting = await (await SimulatedCardsEnv(tmp_path, plan=str(plan)).start()).inspect()

    assert sighting.driver == "1.2"
    assert [card.product for card in sighting.cards] == ["NVIDIA-H100-80GB-HBM3", "NVIDIA-A30", "NVIDIA-A30"]
    assert [mig.layout_text(card.layout) for card in sighting.cards] == ["whole", *["1g.6gb:2,2g.12gb:1"] * 2]


PLANS = {
    "an unknown model": ("cards: [{model: H10}]", "did you mean H100?"),
    "too many": (
        "cards: [{model: T4, count: 30}, {model: T4, count: 30}]",
        "a node can have 1 to 32 cards, not 60",
    ),
    "a misspelt key": ("cards: [{model: T4, cont: 3}]", "cont"),
    "an impossible layout": (
        'cards: [{model: A30, cut: "1g.6gb:5"}]',
        "A30: a card can have at most 4 of 1g.6gb",
    ),
    "an invalid layout": ("cards: [{model: A30, cut: half}]", "is not a MIG layout"),
    "no YAML": ("cards: [", "is invalid"),
}


@pytest.mark.parametrize(("text", "sentence"), PLANS.values(), ids=PLANS)
def test_an_invalid_specification_is_refused(tmp_path, text, sentence):
    (tmp_path / "cards.yaml").write_text(text)

    with pytest.raises(CardError, match="simulated cards") as refusal:
        simulated_spec.read(str(tmp_path / "cards.yaml"))

    assert sentence in str(refusal.value)


def test_a_missing_file_is_reported_with_a_hint():
    with pytest.raises(CardError, match="give MODEL:COUNT, such as H100:8"):
        simulated_spec.read("/no/such/file")


async def test_the_partitioning_survives_a_restart(env):
    before = await env.start()
    await cut(before, FIRST, MigPlacement("2g.20gb", 0, 2), MigPlacement("3g.30gb", 4, 3))
    card = await observed_card(before)

    after = await observed_card(await env.start())

    assert after == card
    assert [slot.id for slot in after.slots] == ["2g.20gb-0", "3g.30gb-4"]


async def test_another_model_at_the_same_address_is_not_partitioned(env):
    await cut(await env.start(), FIRST, MigPlacement("2g.20gb", 0, 2))
    env.plan = "H100:2"

    assert (await observed_card(await env.start())).slots == ()


async def test_an_invalid_state_file_is_reported(env):
    env.state.write_text("{")

    with pytest.raises(CardError, match="delete the file to start with new cards"):
        await env.start()


async def test_a_recreated_mig_device_has_another_uuid(env):
    cards = await env.start()
    (first,) = await cut(cards, FIRST, MigPlacement("1g.10gb", 0, 1))
    await cards.destroy(FIRST, first)

    assert await cards.create(FIRST, MigPlacement("1g.10gb", 0, 1)) != first


STRICT = {
    "mode with devices on it": (lambda cards: cards.enable_mig(FIRST, False), "cannot change while"),
    "where another is": (
        lambda cards: cards.create(FIRST, MigPlacement("1g.10gb", 1, 1)),
        "it overlaps 2g.20gb-0",
    ),
    "at an invalid slice": (
        lambda cards: cards.create(FIRST, MigPlacement("2g.20gb", 3, 2)),
        "start at slice 3",
    ),
    "of another size": (
        lambda cards: cards.create(FIRST, MigPlacement("1g.10gb", 6, 2)),
        "start at slice 6 with size 2",
    ),
    "of an unknown profile": (
        lambda cards: cards.create(FIRST, MigPlacement("9g.9gb", 6, 1)),
        "cannot start",
    ),
    "without mode": (
        lambda cards: cards.create(SECOND, MigPlacement("1g.10gb", 0, 1)),
        "MIG mode is disabled",
    ),
    "on no card": (lambda cards: cards.create("0000:99:00.0", MigPlacement("1g.10gb", 0, 1)), "no card at"),
    "a missing device": (lambda cards: cards.destroy(FIRST, "MIG-none"), "no MIG device MIG-none"),
}


@pytest.mark.parametrize(("do", "sentence"), STRICT.values(), ids=STRICT)
async def test_steps_that_a_driver_refuses_are_refused(env, do, sentence):
    cards = await env.start()
    await cut(cards, FIRST, MigPlacement("2g.20gb", 0, 2))

    with pytest.raises(CardError, match=sentence):
        await do(cards)


async def test_media_extensions_exist_once_per_card(env):
    cards = await env.start()
    await cut(cards, FIRST, MigPlacement("1g.10gb+me", 0, 1))

    with pytest.raises(CardError, match="at most"):
        await cards.create(FIRST, MigPlacement("1g.10gb+me", 1, 1))


async def test_a_card_without_mig_has_no_mode(tmp_path):
    cards = await SimulatedCardsEnv(tmp_path, plan="T4:1").start()

    with pytest.raises(CardError, match="has no MIG mode"):
        await cards.enable_mig(FIRST, True)


FAULTS = {
    "a critical xid": ({"xid": 79}, "CriticalXID", "XID 79: it has fallen off the bus"),
    "lost": ({"lost": True}, "CardLost", "it is lost (simulated by the faults file)"),
    "hot": ({"hot": True}, "Overheated", "92 °C"),
    "hotter": ({"temperature": 101}, "Overheated", "101 °C"),
    "memory errors": ({"ecc": 3}, "ECCErrors", "3 uncorrected memory errors"),
}


@pytest.mark.parametrize(("fault", "reason", "sentence"), FAULTS.values(), ids=FAULTS)
async def test_a_fault_makes_one_card_unhealthy_until_it_is_removed(env, fault, reason, sentence):
    cards = await env.start()
    env.suffer(card0=fault)

    health = (await observed_card(cards)).health
    assert (health.healthy, health.reason) == (False, reason)
    assert sentence in health.message
    assert (await observed_card(cards, SECOND)).health.healthy

    env.suffer()
    assert (await observed_card(cards)).health.healthy


async def test_an_xid_caused_by_a_program_is_reported_but_not_a_fault(env):
    cards = await env.start()
    env.suffer(card0={"xid": 13})

    health = (await observed_card(cards)).health

    assert (health.healthy, health.xid) == (True, 13)


async def test_the_most_specific_entry_defines_the_fault(env):
    cards = await env.start()
    env.faults.write_text(f'cards: {{all: {{ecc: 1}}, 0: {{xid: 48}}, "{SECOND}": {{hot: true}}}}')

    reasons = [card.health.reason for card in (await cards.inspect()).cards]

    assert reasons == ["CriticalXID", "Overheated"]


async def test_faults_of_another_node_have_no_effect(env):
    cards = await env.start()
    env.faults.write_text("nodes: {node-1: {cards: {1: {lost: true}}}, node-2: {cards: {all: {lost: true}}}}")

    assert [card.health.healthy for card in (await cards.inspect()).cards] == [True, False]


async def test_removing_a_card_decreases_the_indexes_of_later_cards(env):
    cards = await env.start()
    env.suffer(card0={"gone": True})

    (left,) = (await cards.inspect()).cards

    assert (left.index, left.address) == (0, SECOND)


async def test_a_replaced_card_has_another_uuid_at_the_same_address(env):
    cards = await env.start()
    before = await observed_card(cards)
    env.suffer(card0={"replaced": 1})

    after = await observed_card(cards)

    assert after.uuid != before.uuid
    assert after.address == before.address


async def test_a_simulated_repartitioning_from_outside_happens_once(env):
    cards = await env.start()
    env.suffer(card0={"cut": "1g.10gb:2"})
    assert mig.layout_text((await observed_card(cards)).layout) == "1g.10gb:2"

    for slot in (await observed_card(cards)).slots:
        await cards.destroy(FIRST, slot.uuid)

    assert (await observed_card(cards)).slots == ()
    assert (await observed_card(await env.start())).slots == ()


async def test_without_a_driver_the_inspection_fails(env):
    cards = await env.start()
    env.faults.write_text("driver: false")

    with pytest.raises(CardError, match="no NVIDIA driver"):
        await cards.inspect()


async def test_an_invalid_faults_file_changes_nothing(env):
    cards = await env.start()
    env.suffer(card0={"xid": 79})
    await cards.inspect()

    env.faults.write_text("cards: {0: {xid: 79")

    assert (await observed_card(cards)).health.reason == "CriticalXID"


async def test_a_slow_step_takes_effect_after_its_delay(env):
    cards = await env.start()
    env.suffer(card0={"slow": 5})

    change = asyncio.ensure_future(cards.enable_mig(FIRST, True))
    await env.clock.let_pass(4)
    assert not (await observed_card(cards)).mig_enabled
    await env.clock.let_pass(2)

    await change
    assert (await observed_card(cards)).mig_enabled


async def test_a_new_fault_ends_the_wait_early(env):
    cards = await env.start()
    await cards.inspect()
    waiting = asyncio.ensure_future(cards.changed(60))

    await env.clock.let_pass(2)
    assert not waiting.done()
    env.suffer(card0={"xid": 79})
    await env.clock.let_pass(2)

    assert waiting.done()


async def test_without_changes_the_wait_lasts_its_full_time(env):
    cards = await env.start()
    await cards.inspect()
    waiting = asyncio.ensure_future(cards.changed(60))

    await env.clock.let_pass(61)

    assert waiting.done()


async def test_a_container_gets_the_edits_for_its_devices(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("cards: [{model: SIM-70GB, count: 2}]\ndevice-node: /dev/null\n")
    cards = await SimulatedCardsEnv(tmp_path, plan=str(plan)).start()
    (slot,) = await cut(cards, SECOND, MigPlacement("1g.10gb", 0, 1))
    whole, partitioned = (await cards.inspect()).cards

    edits = cards.container_edits([HeldDevice(whole), HeldDevice(partitioned, partitioned.slots[0])])

    assert edits.env == {"NVIDIA_VISIBLE_DEVICES": f"{whole.uuid},{slot}"}
    assert [(node.host, node.container) for node in edits.device_nodes] == [
        ("/dev/null", "/dev/nvidia0"),
        ("/dev/null", "/dev/nvidia1"),
    ]
