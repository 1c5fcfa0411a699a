"""Simulated cards are described to container runtimes as they are, and named only if they are described."""

import json

import pytest

from croupier.core.cards.mig import Piece
from croupier.node.cards import cdi
from croupier.node.cards.cards import CardError, Held
from tests.node.simulation import FIRST, SECOND, Bench


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def described(bench: Bench) -> dict[str, dict[str, object]]:
    """What stands in the file, by the name of the device."""
    written = json.loads((bench.cdi / cdi.FILE).read_text())
    assert (written["cdiVersion"], written["kind"]) == ("0.6.0", "croupier.io/card")
    return {one["name"]: one["containerEdits"] for one in written["devices"]}


async def test_every_card_and_every_mig_device_is_a_device_with_a_mark_of_its_own(bench):
    cards = await bench.start()
    await cards.enable_mig(SECOND, True)
    await cards.create(SECOND, Piece("2g.20gb", 2, 2))
    whole, cut = (await cards.look()).cards

    assert described(bench) == {
        whole.uuid: _edits("CROUPIER_CDI_0", whole.uuid, "/dev/croupier/0"),
        cut.uuid: _edits("CROUPIER_CDI_1", cut.uuid, "/dev/croupier/1"),
        cut.slots[0].uuid: _edits("CROUPIER_CDI_1_2G_20GB_2", cut.slots[0].uuid, "/dev/croupier/1-2g.20gb-2"),
    }
    held = [Held(whole), Held(cut, cut.slots[0]), Held(whole)]
    assert cards.container_edits(held).cdi == (
        f"croupier.io/card={whole.uuid}",
        f"croupier.io/card={cut.slots[0].uuid}",
    )


def _edits(variable: str, uuid: str, path: str) -> dict[str, object]:
    node = {"path": path, "hostPath": "/dev/null", "permissions": "rw"}
    return {"env": [f"{variable}={uuid}"], "deviceNodes": [node]}


async def test_a_cut_is_followed_and_what_it_took_away_is_given_to_nobody(bench):
    cards = await bench.start()
    await cards.enable_mig(FIRST, True)
    old = await cards.create(FIRST, Piece("1g.10gb", 0, 1))
    before = (await cards.look()).cards[0]
    await cards.destroy(FIRST, old)
    new = await cards.create(FIRST, Piece("2g.20gb", 0, 2))
    await cards.look()

    assert new in described(bench)
    assert old not in described(bench)
    with pytest.raises(CardError, match=f"{old} is not there any more"):
        cards.container_edits([Held(before, before.slots[0])])


async def test_the_file_outlives_a_crash_comes_back_when_it_is_lost_and_goes_with_a_clean_stop(bench):
    crashed = await bench.start()
    await crashed.look()
    cards = await bench.start()
    assert described(bench)
    await cards.look()

    (bench.cdi / cdi.FILE).unlink()
    await cards.look()
    assert described(bench)

    await cards.close()
    assert list(bench.cdi.iterdir()) == []


async def test_where_nothing_can_be_written_cards_are_given_without_a_name_of_cdi(bench):
    bench.cdi.write_text("no folder")
    cards = await bench.start()
    card = (await cards.look()).cards[0]

    edits = cards.container_edits([Held(card)])

    assert (edits.cdi, edits.env["NVIDIA_VISIBLE_DEVICES"]) == ((), card.uuid)
    await cards.close()
