"""The compact ledger decodes to complete holders, and a ledger of full size stays within the cost limits."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.api import kinds
from croupier.api.mps import NodeReservation, ledger_codec
from croupier.core.ledger import holder, overview
from croupier.core.ledger.overview import HolderSummary
from croupier.core.model.card import CardGrant, CardMode
from croupier.kube.client.errors import Invalid
from croupier.kube.client.resource import Raw
from tests.api.scenario_tables import EXAMPLES

CARDS, HOLDERS = 32, 64


def holders(example: str) -> tuple[list[CardMode], list[HolderSummary]]:
    """The modes of the cards, and all holders."""
    record = msgspec.convert(EXAMPLES[example], NodeReservation)
    ledger = ledger_codec.decode(record.metadata.name, record.spec)
    return [card.mode for card in ledger.cards], list(overview.holder_summaries(ledger))


UID_1 = "3f1c2a9e-5a55-4c38-9d0c-2f6d8f1f0a11"
UID_2 = "9a0b5c1d-0d8e-4a7b-8b1e-54a1f0c9e2d3"
UID_3 = "5d3e7f80-61a2-4b3c-9c4d-0a1b2c3d4e5f"


def test_shares_of_bound_and_held_holders():
    noon = datetime(2030, 1, 31, 12, tzinfo=UTC)
    first, second = (
        (CardGrant(f"node-1-0000-{bus}-00-0", share),) for bus, share in (("65", 50), ("ca", 50))
    )

    assert holders("nodereservation-percent") == (
        ["Percent", "Percent"],
        [
            HolderSummary(
                "default/my-pod", "", "node-1", second, held=True, reservation="example-reservation"
            ),
            HolderSummary("default/trainer-0", UID_1, "node-1", first),
            HolderSummary("default/trainer-1", UID_2, "node-1", first),
            HolderSummary(
                "default/trainer-2",
                UID_3,
                "node-1",
                (CardGrant("node-1-0000-ca-00-0", 30),),
                held=True,
                until=noon,
            ),
        ],
    )


def test_slots_of_one_pod_are_one_holder():
    card = "gpu-worker-0000-65-00-0"

    assert holders("nodereservation-mig") == (
        ["MIG"],
        [
            HolderSummary(
                "ml/infer-0", UID_1, "gpu-worker", (CardGrant(card, slots=("1g.10gb-0", "1g.10gb-1")),)
            ),
            HolderSummary("ml/train-0", UID_2, "gpu-worker", (CardGrant(card, slots=("3g.40gb-4",)),)),
        ],
    )


def test_time_slices():
    card = "gpu-worker2-0000-65-00-0"

    assert holders("nodereservation-timeslice") == (
        ["TimeSlice"],
        [
            HolderSummary("notebooks/alice-0", UID_1, "gpu-worker2", (CardGrant(card, 2),)),
            HolderSummary("notebooks/bob-0", UID_2, "gpu-worker2", (CardGrant(card, 1),)),
        ],
    )


names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)


@given(names, names, st.one_of(st.just(""), st.uuids().map(str)))
def test_the_key_of_a_holder_round_trips(namespace, name, uid):
    key = f"{namespace}/{name}/{uid}" if uid else f"{namespace}/{name}"

    assert (holder.pod_key(key), holder.uid(key)) == (f"{namespace}/{name}", uid)


def full_node(*, percent: int) -> Raw:
    """As many cards and holders as the schema allows, under long names."""
    cards: list[Raw] = [
        {
            "id": f"a-node-with-a-long-name-0000-{card:02x}-00-0",
            "index": card,
            "mode": "Percent",
            "epoch": 1,
            "capacityPercent": 100,
            "holders": {f"team-{card}/{'training-' * 8}{each}/{UID_1}": percent for each in range(HOLDERS)},
        }
        for card in range(CARDS)
    ]
    held = {name: "2030-01-31T12:00:00Z" for card in cards[:8] for name in card["holders"]}
    return {"metadata": {"name": "full-node"}, "spec": {"cards": cards, "held": held, "reservations": {}}}


async def test_a_full_node_fits_the_cost_limits(api, crds, clean_cluster):
    created = await api.create(kinds.NODE_RESERVATIONS, full_node(percent=1))

    assert sum(len(card.holders) for card in created.spec.cards) == CARDS * HOLDERS
    changed = {**full_node(percent=1), "metadata": {"name": "full-node"}}
    changed["metadata"]["resourceVersion"] = created.metadata.resource_version
    changed["spec"]["cards"][0]["epoch"] = 2
    assert (await api.update(kinds.NODE_RESERVATIONS, changed)).spec.cards[0].epoch == 2


async def test_a_full_node_overcommitted_is_refused(api, crds):
    with pytest.raises(Invalid, match="is overcommitted: its holders have more than its capacityPercent"):
        await api.create(kinds.NODE_RESERVATIONS, full_node(percent=2), dry_run=True)
