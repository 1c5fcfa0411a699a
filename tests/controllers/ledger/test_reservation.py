"""Reservations on a real API server, with either capacity manager."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import yaml

from croupier.api import kinds
from croupier.api.mps.reservation import RELEASE_FINALIZER
from croupier.core.ledger import ledger as book
from croupier.core.ledger.ledger import HoldTerms
from croupier.core.model.card import CardGrant
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from tests.controllers import reservation_env as offices
from tests.controllers.reservation_env import ReservationEnv
from tests.polling import until_async

SECONDS = 50

PRINTED = """\
apiVersion: mps.nvidia.com/v1
kind: Reservation
metadata: {name: example-reservation, namespace: default}
spec: {podKey: default/my-pod, nodeName: node-1, numCards: 2, percentPerCard: 50}
"""


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as connected:
        yield connected


@pytest_asyncio.fixture(params=["InMemory", "CRD"])
async def office(api, clean_cluster, namespace, request) -> AsyncIterator[ReservationEnv]:
    async with offices.reservation_env(api, namespace, request.param) as made:
        yield made


async def test_the_documented_reservation_becomes_reserved(office, cluster):
    office.namespace = "default"
    await office.open("node-1")
    try:
        async with office.works():
            cluster.kubectl("apply", "-f", "-", stdin=PRINTED)
            await office.becomes("example-reservation", "Reserved")

            shown = cluster.kubectl(
                "get", "reservation", "example-reservation", "-n", "default", "-o", "yaml"
            ).stdout
            status = yaml.safe_load(shown)["status"]
            assert status["cards"] == [{"id": "node-1-0", "percent": 50}, {"id": "node-1-1", "percent": 50}]
            assert status["message"] == "holds 50 % of card node-1-0 and 50 % of card node-1-1 of node-1"
            assert status["conditions"][0]["reason"] == "Granted"
            assert office.used() == [50, 50]

            # In a thread: kubectl waits for the finalizer, which the controller on this loop takes off.
            gone = ("delete", "reservation", "example-reservation", "-n", "default", "--timeout=30s")
            await asyncio.to_thread(cluster.kubectl, *gone)
            assert office.used() == [0, 0]
    finally:
        patch = '--patch={"metadata":{"finalizers":null}}'
        cluster.kubectl("patch", "rsv", "example-reservation", "--type=merge", patch, check=False)
        cluster.kubectl("delete", "rsv", "example-reservation", "--ignore-not-found")


async def test_a_reservation_that_does_not_fit_has_a_reason_and_waits_in_order(office):
    await office.open("node-1")
    await office.open("node-2")
    async with office.works():
        await office.ask("first", percent=80)
        await office.becomes("first", "Reserved")
        await office.ask("low", percent=90)
        await office.ask("high", percent=90, priority=5)
        await office.ask("small", cards=1, percent=20)
        refused = await office.becomes("low", "Failed")
        assert refused.status.message.startswith("node-1 cannot provide 90 % of 2 cards: ")
        assert refused.status.message.endswith("; available on node-2")
        await office.becomes("high", "Failed")
        await office.becomes("small", "Reserved")
        await office.told("low", "ReservationFailed")
        assert office.metric("reservations_total") == 2
        assert office.metric("reservations_failed_total", reason="InsufficientCapacity") == 2
        assert office.metric("reservations_active") == 2

        await office.delete("small")
        await office.delete("first")
        await office.becomes("high", "Reserved")
        assert (await office.becomes("low", "Failed")).status.cards == ()
        await office.vanishes("first")
        assert office.used() == [90, 90]


async def test_the_status_names_the_generation_that_was_decided(office):
    await office.open("node-1")
    async with office.works():
        await office.ask("job", ttlSeconds=600)
        first = await office.becomes("job", "Reserved")
        assert (first.metadata.generation, first.status.observed_generation) == (1, 1)
    change = {"spec": {"ttlSeconds": 1200}}
    changed = await office.api.patch(kinds.RESERVATIONS, "job", change, namespace=office.namespace)
    assert (changed.metadata.generation, changed.status.observed_generation) == (2, 1)

    async with office.works():

        async def decided() -> bool:
            found = await office.get("job")
            (condition,) = found.status.conditions
            return bool(found.status.observed_generation == condition.observed_generation == 2)

        await until_async(decided, "the new spec to be decided")


async def test_an_unused_reservation_expires(office):
    await office.open("node-1")
    async with office.works():
        await office.ask("brief", ttlSeconds=2)
        await office.becomes("brief", "Reserved")
        ended = await office.becomes("brief", "Released")

        assert ended.status.message == "expired after 2 s without a bound pod"
        assert ended.status.cards == ()
        assert office.used() == [0, 0]
        await office.told("brief", "GPUReservationExpired")


async def test_a_ttl_can_be_changed_while_it_waits(office):
    await office.open("node-1")
    async with office.works():
        await office.ask("patient", ttlSeconds=600)
        await office.becomes("patient", "Reserved")
        shorter = {"spec": {"ttlSeconds": 1}}
        await office.api.patch(kinds.RESERVATIONS, "patient", shorter, namespace=office.namespace)

        await office.becomes("patient", "Released", "expired after 1 s")


async def test_a_reservation_lasts_as_long_as_its_pod(office):
    await office.open("node-1")
    async with office.works():
        await office.ask("train", ttlSeconds=3)
        await office.becomes("train", "Reserved")
        uid = await office.pod("train")

        async def bound() -> bool:
            found = await office.get("train")
            return found is not None and found.status.pod_uid == uid

        await until_async(bound, "the pod to be known")
        assert list(office.manager.ledger("node-1").reservations) == [f"{office.namespace}/train/{uid}"]
        assert not office.manager.ledger("node-1").held, "from now on no clock can free it"

        await office.pod_ends("train")
        ended = await office.becomes("train", "Released")
        assert ended.status.message == f"pod {office.namespace}/train has ended"
        assert ended.status.pod_uid == uid
        assert office.used() == [0, 0]


async def test_a_deleted_pod_has_ended(office):
    await office.open("node-1")
    async with office.works():
        await office.ask("train")
        await office.becomes("train", "Reserved")
        await office.pod("train")

        async def bound() -> bool:
            return not office.manager.ledger("node-1").held

        await until_async(bound, "the pod to be bound in the ledger")
        await office.api.delete(
            kinds.PODS, "train", namespace=office.namespace, how=api_client.DeleteOptions(grace_seconds=0)
        )
        await office.becomes("train", "Released")
        assert office.used() == [0, 0]


async def test_deleting_a_reservation_keeps_the_cards_of_a_running_pod(office):
    await office.open("node-1")
    async with office.works():
        await office.ask("train")
        await office.becomes("train", "Reserved")
        uid = await office.pod("train", cards=2)

        async def bound() -> bool:
            return not office.manager.ledger("node-1").held

        await until_async(bound, "the pod to be bound in the ledger")
        await office.delete("train")
        await office.vanishes("train")

        assert office.used() == [50, 50]
        assert office.manager.ledger("node-1").holders() == {f"{office.namespace}/train/{uid}"}
        assert not office.manager.ledger("node-1").reservations


async def test_an_unknown_node_and_a_node_without_cards(office):
    await office.open("node-1")
    await office.api.create(kinds.NODES, {"metadata": {"name": "bare"}})
    async with office.works():
        await office.ask("lost", node="nowhere")
        await office.ask("bare", node="bare")
        await office.becomes("lost", "Failed", "node nowhere does not exist; available on node-1")
        await office.becomes("bare", "Failed", "bare has no cards; available on node-1")

        await office.open("nowhere")
        await office.becomes("lost", "Reserved")


async def test_a_reservation_waits_until_the_cards_of_its_node_are_known(office):
    """As while a manager starts: the cards are reported, and the ledger of the node is not created yet."""
    await office.api.create(kinds.NODES, {"metadata": {"name": "node-1"}})
    await office.card("node-1", 0)
    labels = {"gpu.deckhouse.io/device.00.vendor": "10de"}
    await office.api.create(kinds.NODES, {"metadata": {"name": "labelled", "labels": labels}})
    await office.api.create(kinds.NODES, {"metadata": {"name": "bare"}})
    async with office.works():
        await office.ask("early", cards=1)
        await office.ask("labelled", node="labelled")
        await office.ask("bare", node="bare")
        await office.becomes("early", "Pending", "waiting for the cards of node-1")
        await office.becomes("labelled", "Pending", "waiting for the cards of labelled")
        await office.becomes("bare", "Failed", "bare has no cards")

        await office.open_ledger("node-1", cards=1)
        await office.becomes("early", "Reserved")
        await office.told("early", "Reserved")
        assert await office.events("early") == ["Reserved"]


async def test_a_reservation_loses_cards_that_are_gone(office):
    await office.open("node-1")
    await office.open("node-2", cards=3)
    async with office.works():
        await office.ask("fails")
        await office.ask("moves", node="node-2")
        await office.becomes("fails", "Reserved")
        before = await office.becomes("moves", "Reserved")
        for reservation in ("fails", "moves"):
            found = await office.get(reservation)
            assert found is not None
            await office.api.delete(kinds.GPU_DEVICES, found.status.cards[0].id)
        await office.sync("node-1", node_1_0=False)
        await office.sync("node-2", node_2_0=False)

        await office.becomes("fails", "Failed", "node-1 cannot provide 50 % of 2 cards")
        await office.uses([0, 0])
        await office.becomes("moves", "Reserved", "50 % of card node-2-2")
        assert before.status.cards[0].id == "node-2-0"
        await until_async(lambda: _told_twice(office, "moves"), "an Event about the other cards")
        assert office.metric("reservations_total") == 2

        await office.card("node-1", 0)
        await office.sync("node-1", node_1_0=True)
        await office.becomes("fails", "Reserved")


async def _told_twice(office: ReservationEnv, name: str) -> bool:
    return (await office.events(name)).count("Reserved") == 2


async def test_a_pod_keeps_cards_that_are_gone(office):
    await office.open("node-1")
    async with office.works():
        await office.ask("bound", percent=30)
        await office.ask("waits", percent=40)
        await office.becomes("waits", "Reserved")
        await office.becomes("bound", "Reserved")
        await office.pod("bound")
        await until_async(lambda: _reason(office, "bound"), "the pod to be bound")
        await office.api.delete(kinds.GPU_DEVICES, "node-1-0")
        await office.sync("node-1", node_1_0=False)

        await office.becomes("waits", "Failed")
        assert office.used() == [30, 30]
        await office.becomes("bound", "Reserved")


async def _reason(office: ReservationEnv, name: str) -> bool:
    found = await office.get(name)
    return found is not None and [item.reason for item in found.status.conditions] == ["PodBound"]


async def test_an_unhealthy_or_missing_card_does_not_end_a_reservation_at_once(office):
    office.card_loss_delay = 600.0
    await office.open("node-1")
    async with office.works():
        await office.ask("kept")
        await office.becomes("kept", "Reserved")
        await office.api.delete(kinds.GPU_DEVICES, "node-1-1")
        await office.sync("node-1", node_1_0=False, node_1_1=False)
        await office.becomes(
            "kept", "Reserved", "the pod waits, because node-1-0 is not healthy and node-1-1 is not healthy"
        )

        await office.card("node-1", 1)
        await office.sync("node-1", node_1_0=True, node_1_1=True)
        await until_async(lambda: _healthy(office), "the message to be as before")
        assert office.used() == [50, 50]
        assert await office.events("kept") == ["Reserved"]


async def _healthy(office: ReservationEnv) -> bool:
    found = await office.get("kept")
    return found is not None and found.status.message.endswith("50 % of card node-1-1 of node-1")


async def test_a_reservation_is_only_for_pods_of_its_namespace(office):
    await office.open("node-1")
    async with office.works():
        await office.ask("spy", podKey="kube-system/other")
        await office.becomes("spy", "Failed", "podKey kube-system/other is in another namespace")
        assert office.used() == [0, 0]


async def test_one_reservation_per_pod_and_node(office):
    await office.open("node-1")
    async with office.works():
        await office.ask("one")
        await office.becomes("one", "Reserved")
        await office.ask("two", podKey=f"{office.namespace}/one", percent=20)
        await office.becomes("two", "Failed", "through Reservation one")

        await office.delete("one")
        await office.becomes("two", "Reserved")
        assert office.used() == [20, 20]


async def test_a_pod_holds_cards_of_one_node(office):
    await office.open("node-1")
    await office.open("node-2")
    async with office.works():
        await office.ask("first")
        await office.becomes("first", "Reserved")
        await office.ask("second", node="node-2", podKey=f"{office.namespace}/first")
        await office.becomes("second", "Failed", "already has cards of node-1 through Reservation first")
        assert office.used("node-2") == [0, 0]

        await office.delete("first")
        await office.becomes("second", "Reserved")
        await office.pod("first", node="node-1")
        await office.becomes("second", "Failed", f"pod {office.namespace}/first is bound to node-1")
        await office.uses([0, 0], "node-2")

        await office.pod_ends("first")
        await office.becomes("second", "Reserved")


async def test_reservations_for_one_pod_that_are_created_at_the_same_time(office):
    nodes = [f"node-{number}" for number in range(1, 6)]
    for node in nodes:
        await office.open(node)
    async with office.works():
        for number in range(3):
            pod = f"{office.namespace}/pod-{number}"
            await asyncio.gather(*(office.ask(f"{node}-{number}", node=node, podKey=pod) for node in nodes))

            async def decided(number: int = number) -> bool:
                found = [await office.get(f"{node}-{number}") for node in nodes]
                phases = sorted(item.status.phase for item in found if item is not None)
                return phases == ["Failed"] * (len(nodes) - 1) + ["Reserved"]

            await until_async(decided, "one of the Reservations to hold cards")
        assert sum(share for node in nodes for share in office.used(node)) == 3 * 2 * 50


async def test_holds_for_one_pod_on_two_nodes_become_one(office):
    """As two capacity managers could have left them."""
    await office.open("node-1")
    await office.open("node-2")
    pod = f"{office.namespace}/pod"
    for node in ("node-1", "node-2"):
        await office.ask(f"on-{node}", node=node, podKey=pod)
        await office.api.patch(
            kinds.RESERVATIONS,
            f"on-{node}",
            {"metadata": {"finalizers": [RELEASE_FINALIZER]}},
            namespace=office.namespace,
        )
        grant = tuple(CardGrant(f"{node}-{index}", 50) for index in range(2))
        terms = HoldTerms(reservation=f"on-{node}")
        await office.manager.amend(node, lambda held, g=grant, t=terms: book.give(held, pod, g, t))

    async with office.works():
        await office.becomes("on-node-1", "Reserved")
        await office.becomes("on-node-2", "Failed", "already has cards of node-1")
        assert office.used("node-1") == [50, 50]
        assert office.used("node-2") == [0, 0]


@pytest.mark.parametrize(
    "lie",
    [
        {"phase": "Released"},
        {"phase": "Failed", "message": "no"},
        {"cards": [{"id": "elsewhere", "percent": 100}]},
        {"conditions": None, "message": "mine for ever"},
    ],
    ids=str,
)
async def test_a_spoofed_status_is_corrected(office, lie):
    await office.open("node-1")
    async with office.works():
        await office.ask("honest")
        before = (await office.becomes("honest", "Reserved")).status
        where = {"namespace": office.namespace, "subresource": "status"}
        await office.api.patch(kinds.RESERVATIONS, "honest", {"status": lie}, **where)

        async def right() -> bool:
            now = (await office.becomes("honest", "Reserved")).status
            return (now.message, now.cards) == (before.message, before.cards) and bool(now.conditions)

        await until_async(right, "the truth")
        assert office.used() == [50, 50]


async def test_a_status_cannot_claim_cards_without_the_ledger(office):
    await office.open("node-1")
    async with office.works():
        await office.ask("greedy", cards=3)
        await office.becomes("greedy", "Failed")
        lie = {"status": {"phase": "Reserved", "cards": [{"id": "node-1-0", "percent": 100}]}}
        where = {"namespace": office.namespace, "subresource": "status"}
        await office.api.patch(kinds.RESERVATIONS, "greedy", lie, **where)

        assert (await office.becomes("greedy", "Failed")).status.cards == ()
        assert office.used() == [0, 0]


async def test_a_finalizer_is_never_stuck(office):
    """The node and its ledger are gone: there is nothing to release."""
    await office.open("node-1")
    async with office.works():
        await office.ask("left-over")
        await office.becomes("left-over", "Reserved")
    await office.api.delete(kinds.NODES, "node-1")
    await office.manager.release(f"{office.namespace}/left-over", "node-1")
    assert await office.manager.close("node-1")
    await office.delete("left-over")
    assert await office.get("left-over") is not None

    async with office.works():
        await office.vanishes("left-over")


async def test_a_reservation_deleted_without_finalizer_is_freed(office):
    """The finalizer was removed by hand while no controller ran."""
    await office.open("node-1")
    async with office.works():
        await office.ask("torn")
        await office.becomes("torn", "Reserved")
    torn = {"metadata": {"finalizers": None}}
    await office.api.patch(kinds.RESERVATIONS, "torn", torn, namespace=office.namespace)
    await office.delete("torn")

    async with office.works():
        await office.uses([0, 0])


async def test_a_new_controller_continues_after_a_crash_at_any_step(office):
    """A crash after the finalizer, after the hold, or after the release: the next controller continues."""
    await office.open("node-1", cards=6)
    guarded = {"metadata": {"finalizers": [RELEASE_FINALIZER]}}
    for name in ("guarded", "held", "released"):
        await office.ask(name, cards=1, percent=10)
        await office.api.patch(kinds.RESERVATIONS, name, guarded, namespace=office.namespace)
    await office.delete("released")

    def hold(ledger: book.Ledger) -> book.Ledger:
        given = book.give(
            ledger, f"{office.namespace}/held", (CardGrant("node-1-5", 10),), HoldTerms(reservation="held")
        )
        assert isinstance(given, book.Ledger)
        return given

    await office.manager.amend("node-1", hold)
    async with office.works():
        await office.becomes("guarded", "Reserved")
        found = await office.becomes("held", "Reserved")
        await office.vanishes("released")
        assert [card.id for card in found.status.cards] == ["node-1-5"]
        assert sum(office.used()) == 20


async def test_nothing_is_written_without_changes(office):
    await office.open("node-1")
    async with office.works() as first:
        await office.ask("held")
        await office.ask("refused", cards=3)
        await office.becomes("refused", "Failed")
        held = await office.becomes("held", "Reserved")
        refused = await office.becomes("refused", "Failed")
        await first.reconcile("node-1")
    async with office.works() as second:
        await second.reconcile("node-1")
        await second.reconcile("node-1")

    assert await office.get("held") == held
    assert await office.get("refused") == refused
