"""The CDI specification describes the current simulated cards, and only described devices are named."""

import json

import pytest

from croupier.core.model.mig import MigPlacement
from croupier.node.cards import cdi
from croupier.node.cards.card_driver import CardError, HeldDevice
from tests.node.simulated_env import FIRST, SECOND, SimulatedCardsEnv


@pytest.fixture
def env(tmp_path):
    return SimulatedCardsEnv(tmp_path)


def described(env: SimulatedCardsEnv) -> dict[str, dict[str, object]]:
    """The container edits in the file by the name of the device."""
    written = json.loads((env.cdi / cdi.FILE).read_text())
    assert (written["cdiVersion"], written["kind"]) == ("0.6.0", "croupier.io/card")
    return {device["name"]: device["containerEdits"] for device in written["devices"]}


async def test_every_card_and_every_mig_device_has_its_own_cdi_device(env):
    cards = await env.start()
    await cards.enable_mig(SECOND, True)
    await cards.create(SECOND, MigPlacement("2g.20gb", 2, 2))
    whole, cut = (await cards.inspect()).cards

    assert described(env) == {
        whole.uuid: _edits("CROUPIER_CDI_0", whole.uuid, "/dev/croupier/0"),
        cut.uuid: _edits("CROUPIER_CDI_1", cut.uuid, "/dev/croupier/1"),
        cut.slots[0].uuid: _edits("CROUPIER_CDI_1_2G_20GB_2", cut.slots[0].uuid, "/dev/croupier/1-2g.20gb-2"),
    }
    held = [HeldDevice(whole), HeldDevice(cut, cut.slots[0]), HeldDevice(whole)]
    assert cards.container_edits(held).cdi == (
        f"croupier.io/card={whole.uuid}",
        f"croupier.io/card={cut.slots[0].uuid}",
    )


def _edits(variable: str, uuid: str, path: str) -> dict[str, object]:
    node = {"path": path, "hostPath": "/dev/null", "permissions": "rw"}
    return {"env": [f"{variable}={uuid}"], "deviceNodes": [node]}


async def test_repartitioning_updates_the_file_and_removed_devices_are_refused(env):
    cards = await env.start()
    await cards.enable_mig(FIRST, True)
    old = await cards.create(FIRST, MigPlacement("1g.10gb", 0, 1))
    before = (await cards.inspect()).cards[0]
    await cards.destroy(FIRST, old)
    new = await cards.create(FIRST, MigPlacement("2g.20gb", 0, 2))
    await cards.inspect()

    assert new in described(env)
    assert old not in described(env)
    with pytest.raises(CardError, match=f"{old} no longer exists"):
        cards.container_edits([HeldDevice(before, before.slots[0])])


async def test_the_file_survives_a_crash_is_restored_if_deleted_and_removed_at_a_clean_stop(env):
    crashed = await env.start()
    await crashed.inspect()
    cards = await env.start()
    assert described(env)
    await cards.inspect()

    (env.cdi / cdi.FILE).unlink()
    await cards.inspect()
    assert described(env)

    await cards.close()
    assert list(env.cdi.iterdir()) == []


async def test_cards_have_no_cdi_names_if_the_file_cannot_be_written(env):
    env.cdi.write_text("no folder")
    cards = await env.start()
    card = (await cards.inspect()).cards[0]

    edits = cards.container_edits([HeldDevice(card)])

    assert (edits.cdi, edits.env["NVIDIA_VISIBLE_DEVICES"]) == ((), card.uuid)
    await cards.close()
