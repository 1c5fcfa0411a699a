"""Simulated cards are as strict as a driver, remember how they are cut, and suffer on demand."""

import asyncio

import pytest

from croupier.core.cards import catalogue, mig
from croupier.core.cards.mig import Piece
from croupier.node.cards import simulated_plan
from croupier.node.cards.cards import CardError, Cards, Held
from tests.node.simulation import FIRST, SECOND, Bench, seen


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


async def cut(cards: Cards, address: str, *pieces: Piece) -> list[str]:
    await cards.enable_mig(address, True)
    return [await cards.create(address, piece) for piece in pieces]


@pytest.mark.parametrize("model", catalogue.MODELS, ids=lambda model: model.name)
async def test_every_model_of_the_catalogue_can_be_had(tmp_path, model):
    cards = await Bench(tmp_path, plan=f"{model.name}:3").start()

    sighting = await cards.look()

    assert [card.index for card in sighting.cards] == [0, 1, 2]
    assert {card.product for card in sighting.cards} == {model.product}
    assert {card.mig_capable for card in sighting.cards} == {model.mig_capable}
    assert len({card.uuid for card in sighting.cards}) == 3
    assert all(card.health.healthy and not card.slots for card in sighting.cards)


async def test_models_are_mixed_by_a_file_and_may_be_cut_from_the_start(tmp_path):
    plan = tmp_path / "cards.yaml"
    plan.write_text(
        'driver: "1.2"\ncards:\n- {model: h100}\n- {model: A30, count: 2, cut: "1g.6gb:2,2g.12gb:1"}\n'
    )

    sighting = await (await Bench(tmp_path, plan=str(plan)).start()).look()

    assert sighting.driver == "1.2"
    assert [card.product for card in sighting.cards] == ["NVIDIA-H100-80GB-HBM3", "NVIDIA-A30", "NVIDIA-A30"]
    assert [mig.spelled(card.layout) for card in sighting.cards] == ["whole", *["1g.6gb:2,2g.12gb:1"] * 2]


PLANS = {
    "an unknown model": ("cards: [{model: H10}]", "did you mean H100?"),
    "too many": (
        "cards: [{model: T4, count: 30}, {model: T4, count: 30}]",
        "a node has 1 to 32 cards, not 60",
    ),
    "a misspelt key": ("cards: [{model: T4, cont: 3}]", "cont"),
    "an impossible cut": (
        'cards: [{model: A30, cut: "1g.6gb:5"}]',
        "A30: a card can have 4 of 1g.6gb at most",
    ),
    "a cut that is none": ("cards: [{model: A30, cut: half}]", "is no MIG layout"),
    "no YAML": ("cards: [", "is not understood"),
}


@pytest.mark.parametrize(("text", "sentence"), PLANS.values(), ids=PLANS)
def test_a_plan_that_cannot_be_meant_is_refused(tmp_path, text, sentence):
    (tmp_path / "cards.yaml").write_text(text)

    with pytest.raises(CardError, match="simulated cards") as refusal:
        simulated_plan.read(str(tmp_path / "cards.yaml"))

    assert sentence in str(refusal.value)


def test_a_file_that_is_not_there_is_told_with_what_could_be_written():
    with pytest.raises(CardError, match="write MODEL:COUNT, such as H100:8"):
        simulated_plan.read("/no/such/file")


async def test_cards_stay_cut_when_their_agent_ends(bench):
    before = await bench.start()
    await cut(before, FIRST, Piece("2g.20gb", 0, 2), Piece("3g.30gb", 4, 3))
    card = await seen(before)

    after = await seen(await bench.start())

    assert after == card
    assert [slot.id for slot in after.slots] == ["2g.20gb-0", "3g.30gb-4"]


async def test_another_model_in_the_same_place_is_a_card_nobody_has_cut(bench):
    await cut(await bench.start(), FIRST, Piece("2g.20gb", 0, 2))
    bench.plan = "H100:2"

    assert (await seen(await bench.start())).slots == ()


async def test_a_state_that_cannot_be_read_is_told(bench):
    bench.state.write_text("{")

    with pytest.raises(CardError, match="remove the file to begin anew"):
        await bench.start()


async def test_a_mig_device_that_is_made_again_is_another_one(bench):
    cards = await bench.start()
    (first,) = await cut(cards, FIRST, Piece("1g.10gb", 0, 1))
    await cards.destroy(FIRST, first)

    assert await cards.create(FIRST, Piece("1g.10gb", 0, 1)) != first


STRICT = {
    "mode with devices on it": (lambda cards: cards.enable_mig(FIRST, False), "cannot change while"),
    "where another is": (lambda cards: cards.create(FIRST, Piece("1g.10gb", 1, 1)), "2g.20gb-0 is there"),
    "where none may begin": (lambda cards: cards.create(FIRST, Piece("2g.20gb", 3, 2)), "no place 3"),
    "of another size": (lambda cards: cards.create(FIRST, Piece("1g.10gb", 6, 2)), "no place 6 of size 2"),
    "of no known kind": (lambda cards: cards.create(FIRST, Piece("9g.9gb", 6, 1)), "no place"),
    "without mode": (lambda cards: cards.create(SECOND, Piece("1g.10gb", 0, 1)), "MIG mode is off"),
    "on no card": (lambda cards: cards.create("0000:99:00.0", Piece("1g.10gb", 0, 1)), "no card at"),
    "what is not there": (lambda cards: cards.destroy(FIRST, "MIG-none"), "no MIG device MIG-none"),
}


@pytest.mark.parametrize(("do", "sentence"), STRICT.values(), ids=STRICT)
async def test_what_a_driver_refuses_is_refused(bench, do, sentence):
    cards = await bench.start()
    await cut(cards, FIRST, Piece("2g.20gb", 0, 2))

    with pytest.raises(CardError, match=sentence):
        await do(cards)


async def test_media_extensions_are_given_once(bench):
    cards = await bench.start()
    await cut(cards, FIRST, Piece("1g.10gb+me", 0, 1))

    with pytest.raises(CardError, match="at most"):
        await cards.create(FIRST, Piece("1g.10gb+me", 1, 1))


async def test_a_card_without_mig_has_no_mode(tmp_path):
    cards = await Bench(tmp_path, plan="T4:1").start()

    with pytest.raises(CardError, match="has no MIG mode"):
        await cards.enable_mig(FIRST, True)


SICK = {
    "a critical xid": ({"xid": 79}, "CriticalXID", "XID 79: it has fallen off the bus"),
    "lost": ({"lost": True}, "CardLost", "does not answer"),
    "hot": ({"hot": True}, "Overheated", "92 °C"),
    "hotter": ({"temperature": 101}, "Overheated", "101 °C"),
    "memory errors": ({"ecc": 3}, "ECCErrors", "3 uncorrected memory errors"),
}


@pytest.mark.parametrize(("fault", "reason", "sentence"), SICK.values(), ids=SICK)
async def test_a_fault_makes_one_card_sick_until_it_is_taken_away(bench, fault, reason, sentence):
    cards = await bench.start()
    bench.suffer(card0=fault)

    sick = (await seen(cards)).health
    assert (sick.healthy, sick.reason) == (False, reason)
    assert sentence in sick.message
    assert (await seen(cards, SECOND)).health.healthy

    bench.suffer()
    assert (await seen(cards)).health.healthy


async def test_an_xid_of_a_program_is_told_and_not_held_against_the_card(bench):
    cards = await bench.start()
    bench.suffer(card0={"xid": 13})

    health = (await seen(cards)).health

    assert (health.healthy, health.xid) == (True, 13)


async def test_the_closest_word_names_the_fault(bench):
    cards = await bench.start()
    bench.faults.write_text(f'cards: {{all: {{ecc: 1}}, 0: {{xid: 48}}, "{SECOND}": {{hot: true}}}}')

    reasons = [card.health.reason for card in (await cards.look()).cards]

    assert reasons == ["CriticalXID", "Overheated"]


async def test_faults_of_another_node_are_not_ours(bench):
    cards = await bench.start()
    bench.faults.write_text(
        "nodes: {node-1: {cards: {1: {lost: true}}}, node-2: {cards: {all: {lost: true}}}}"
    )

    assert [card.health.healthy for card in (await cards.look()).cards] == [True, False]


async def test_a_card_that_is_taken_out_moves_the_later_ones_up(bench):
    cards = await bench.start()
    bench.suffer(card0={"gone": True})

    (left,) = (await cards.look()).cards

    assert (left.index, left.address) == (0, SECOND)


async def test_a_replaced_board_has_another_uuid_in_the_same_place(bench):
    cards = await bench.start()
    before = await seen(cards)
    bench.suffer(card0={"replaced": 1})

    after = await seen(cards)

    assert after.uuid != before.uuid
    assert after.address == before.address


async def test_somebodys_cut_behind_our_back_happens_once(bench):
    cards = await bench.start()
    bench.suffer(card0={"cut": "1g.10gb:2"})
    assert mig.spelled((await seen(cards)).layout) == "1g.10gb:2"

    for slot in (await seen(cards)).slots:
        await cards.destroy(FIRST, slot.uuid)

    assert (await seen(cards)).slots == ()
    assert (await seen(await bench.start())).slots == ()


async def test_without_a_driver_nothing_is_seen(bench):
    cards = await bench.start()
    bench.faults.write_text("driver: false")

    with pytest.raises(CardError, match="no NVIDIA driver"):
        await cards.look()


async def test_a_file_of_faults_that_is_not_understood_changes_nothing(bench):
    cards = await bench.start()
    bench.suffer(card0={"xid": 79})
    await cards.look()

    bench.faults.write_text("cards: {0: {xid: 79")

    assert (await seen(cards)).health.reason == "CriticalXID"


async def test_a_slow_step_takes_its_time_and_has_no_effect_before(bench):
    cards = await bench.start()
    bench.suffer(card0={"slow": 5})

    change = asyncio.ensure_future(cards.enable_mig(FIRST, True))
    await bench.clock.let_pass(4)
    assert not (await seen(cards)).mig_enabled
    await bench.clock.let_pass(2)

    await change
    assert (await seen(cards)).mig_enabled


async def test_a_new_fault_is_worth_a_look_before_the_time_is_up(bench):
    cards = await bench.start()
    await cards.look()
    waiting = asyncio.ensure_future(cards.changed(60))

    await bench.clock.let_pass(2)
    assert not waiting.done()
    bench.suffer(card0={"xid": 79})
    await bench.clock.let_pass(2)

    assert waiting.done()


async def test_nothing_new_is_waited_for_until_the_time_is_up(bench):
    cards = await bench.start()
    await cards.look()
    waiting = asyncio.ensure_future(cards.changed(60))

    await bench.clock.let_pass(61)

    assert waiting.done()


async def test_a_container_is_told_what_it_was_given(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("cards: [{model: SIM-70GB, count: 2}]\ndevice-node: /dev/null\n")
    cards = await Bench(tmp_path, plan=str(plan)).start()
    (slot,) = await cut(cards, SECOND, Piece("1g.10gb", 0, 1))
    whole, cut_card = (await cards.look()).cards

    edits = cards.container_edits([Held(whole), Held(cut_card, cut_card.slots[0])])

    assert edits.env == {"NVIDIA_VISIBLE_DEVICES": f"{whole.uuid},{slot}"}
    assert [(node.host, node.container) for node in edits.device_nodes] == [
        ("/dev/null", "/dev/nvidia0"),
        ("/dev/null", "/dev/nvidia1"),
    ]
