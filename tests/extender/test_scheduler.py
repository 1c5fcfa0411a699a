"""kube-scheduler places pods through the extender; unschedulable pods get our refusal as Event."""

import asyncio
import random
from datetime import UTC, datetime
from pathlib import Path

from croupier.api import kinds
from croupier.core.claims.claim import CardClaim
from croupier.core.ledger.ledger import HoldTerms
from croupier.core.model.card_request import CardShares
from croupier.kube.serving.http_server import TLS
from croupier.ops.scheduler_config import SchedulerConfigOptions, SchedulerTLSFiles
from croupier_lab import certificates, ports, process
from croupier_lab.certificates import CertificateSubject
from croupier_lab.lab import Lab
from tests.extender import env as tables
from tests.extender.env import ExtenderEnv

SECONDS = 30


async def test_a_pod_gets_its_node_and_its_cards_in_one_write(table: ExtenderEnv):
    node = await table.node("node-1")
    async with table.extender():
        pod = await table.pod("trainer", cards="2", ratio="50")

        where, granted = await table.placed("trainer")

        assert where == node
        assert [part.share for part in granted] == [50, 50]
        ledger = table.manager.ledger(node)
        assert ledger is not None
        assert ledger.grant(f"{table.namespace}/trainer/{pod.metadata.uid}") == granted
        await table.settled(node)


async def test_over_tls_with_the_certificates_of_both(table: ExtenderEnv, lab: Lab, tmp_path: Path):
    """As `croupier scheduler-config` prints it for an extender on the network."""
    now = datetime.now(UTC)
    certificates.create(tmp_path, now=now)
    ours = certificates.issue(
        tmp_path, CertificateSubject("extender", "extender", hosts=("127.0.0.1",)), now=now
    )
    theirs = certificates.issue(tmp_path, CertificateSubject("scheduler", "kube-scheduler"), now=now)
    authority = tmp_path / "ca.crt"
    (table.port,) = ports.free(1, chance=random.Random())  # noqa: S311  # ports, not a secret
    files = SchedulerTLSFiles(str(authority), str(theirs.certificate), str(theirs.key))
    wish = SchedulerConfigOptions(url=f"https://127.0.0.1:{table.port}", files=files)
    hired = tables.start_scheduler(lab, tmp_path, wish, name="careful")
    try:
        node = await table.node("node-1")
        async with table.extender(tls=TLS(ours.certificate, ours.key, authority)):
            await table.pod("trainer", cards="2", ratio="50", scheduler="careful")

            assert (await table.placed("trainer"))[0] == node
    finally:
        await process.stop(hired.process)


async def test_forty_pods_go_onto_one_node(table: ExtenderEnv):
    node = await table.node("node-1", cards=8)
    async with table.extender():
        async with asyncio.TaskGroup() as creating:
            for number in range(40):
                creating.create_task(table.pod(f"p{number}", cards="1", ratio="20"))

        placed = [await table.placed(f"p{number}") for number in range(40)]

        assert {where for where, _ in placed} == {node}
        ledger = table.manager.ledger(node)
        assert ledger is not None
        assert [card.used for card in ledger.cards] == [100] * 8
        assert len(table.holders(node)) == 40


async def test_whole_cards_and_percentages_share_a_node(table: ExtenderEnv):
    node = await table.node("node-1", cards=3)
    async with table.extender():
        await table.pod("whole", gpus=1)
        await table.pod("half", cards="1", ratio="50")
        await table.pod(
            "two", gpus=1, marked=False
        )  # the resource alone makes the scheduler call the extender

        for name in ("whole", "half", "two"):
            assert (await table.placed(name))[0] == node
        ledger = table.manager.ledger(node)
        assert ledger is not None
        assert sorted(card.used for card in ledger.cards) == [50, 100, 100]


async def test_a_too_large_request_is_unschedulable_with_our_message(table: ExtenderEnv):
    await table.node("node-1", cards=2)
    await table.node("node-2", cards=2)
    await table.node("cpu-only", cards=0)
    async with table.extender():
        await table.pod("greedy", cards="3", ratio="50")

        said = await table.sentence("greedy")

        assert said.startswith(
            "0/3 nodes are available: 1 the node has no cards in the ledger, "
            "2 needs 3 cards with 50 % free but has 2. "
        ), said


async def test_invalid_annotations_are_refused_with_one_reason(table: ExtenderEnv):
    await table.node("node-1")
    await table.node("node-2")
    async with table.extender():
        await table.pod("typo", cards="2", ratio="half")

        said = await table.sentence("typo")

        assert said.startswith(
            '0/2 nodes are available: 2 annotation gpu.mps.io/ratio is "half": it must be'
        ), said


async def test_an_unschedulable_pod_is_placed_when_cards_become_free(table: ExtenderEnv):
    node = await table.node("node-1", cards=1)
    async with table.extender():
        await table.pod("first", gpus=1)
        await table.placed("first")
        await table.pod("second", cards="1", ratio="100")
        await table.sentence("second", "needs 1 free card but has 0")

        (holder,) = table.holders(node)
        await table.manager.release(holder, node)

        assert (await table.placed("second", within=60))[0] == node


async def test_a_pod_goes_to_the_node_of_its_reservation(table: ExtenderEnv):
    await table.node("node-1")
    there = await table.node("node-2")
    claim = CardClaim(f"{table.namespace}/guest", (CardShares(1, 50),), HoldTerms(reservation="by-hand"))
    await table.manager.claim(there, claim)
    async with table.extender():
        await table.pod("guest", cards="1", ratio="50")

        assert (await table.placed("guest"))[0] == there


async def test_without_the_extender_only_pods_with_the_ledger_resource_wait(table: ExtenderEnv):
    node = await table.node("node-1")
    await table.pod("ours", cards="1", ratio="50")
    await table.pod("theirs", marked=False)

    assert (await table.placed("theirs"))[0] == node
    await table.sentence("ours", "connection refused")
    pod = await table.look("ours")
    assert pod is not None
    assert pod.spec.node_name == ""

    async with table.extender():
        where, granted = await table.placed("ours", within=60)
        assert where == node
        assert granted


async def test_nothing_is_placed_before_the_ledgers_are_loaded(table: ExtenderEnv):
    await table.node("node-1")
    known = False
    from croupier.extender.server import ExtenderDependencies

    async with table.extender(dependencies=ExtenderDependencies(ready=lambda: known)):
        await table.pod("early", cards="1", ratio="50")
        await table.sentence("early", "the ledger is not loaded yet")

        known = True

        assert (await table.placed("early", within=60))[0] == "node-1"


async def test_a_pod_is_placed_as_soon_as_a_node_gains_the_missing_resource(table: ExtenderEnv):
    """kube-scheduler alone would retry after five minutes, because no node has the ledger resource."""
    node = await table.node("node-1")
    async with table.extender(), table.sleepers():
        await table.pod("late", cards="1", ratio="50", lacks="example.com/late")
        await table.sentence("late", "Insufficient example.com/late")

        has = {"example.com/late": "1"}
        status = {"status": {"capacity": has, "allocatable": has}}
        await table.api.patch(kinds.NODES, node, status, subresource="status")

        assert (await table.placed("late"))[0] == node
