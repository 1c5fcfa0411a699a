"""Every class of finding, provoked on a real API server, is repaired or reported."""

import asyncio
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner, Result

from croupier.api import kinds
from croupier.cli import audit as verb
from croupier.controllers.ledger import inspection
from croupier.controllers.ledger.audit import Audit
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import CardGrant, LedgerCard
from croupier_lab.cluster import Cluster
from tests.controllers import ledger_env as worlds
from tests.controllers.conftest import in_the_api_server
from tests.controllers.ledger_env import NODE, LedgerEnv, card
from tests.polling import until_async

COMMAND = typer.Typer()
COMMAND.command()(verb.audit)
FREE = {card(0): (True, 0), card(1): (True, 0)}


async def opened(world: LedgerEnv) -> None:
    await world.node(gpu=2)
    await world.manager.open(NODE, worlds.empty_ledger())


async def divergences(world: LedgerEnv) -> list[str]:
    return [event for event in await world.events(NODE, "default") if "GPULedgerDivergence" in event]


async def croupier_audit(cluster: Cluster, *arguments: str) -> Result:
    """The command in its own thread, because it needs its own event loop."""
    typed = [*arguments, "--kubeconfig", str(cluster.kubeconfig)]
    return await asyncio.to_thread(lambda: CliRunner().invoke(COMMAND, typed))


async def leak(world: LedgerEnv) -> None:
    await world.plant(f"{world.namespace}/gone/0b1c", card(0))


async def leak_of_a_reservation(world: LedgerEnv) -> None:
    await world.plant(f"{world.namespace}/a", card(0), terms=HoldTerms(reservation="gone"))


async def ghost(world: LedgerEnv) -> None:
    await world.runs("a", card(0))


async def foreign_ghost(world: LedgerEnv) -> None:
    await world.bind(await world.pod("a", gpus=1))


async def wrong_card(world: LedgerEnv) -> None:
    await world.plant(await world.runs("a", card(0)), card(1))


async def twice(world: LedgerEnv) -> None:
    await world.plant(await world.runs("a", card(0)), card(0))
    await world.hold(f"{world.namespace}/a", card(1), seconds=3600)


async def drift(world: LedgerEnv) -> None:
    await world.offers(gpu=3)


HALF = {card(0): (True, 50), card(1): (True, 0)}
REPAIRED: dict[str, tuple[Any, str, dict[str, tuple[bool, int]]]] = {
    "Leak": (leak, "Leak", FREE),
    "Leak of a Reservation": (leak_of_a_reservation, "Leak", FREE),
    "Ghost": (ghost, "Ghost", HALF),
    "Ghost of another scheduler": (foreign_ghost, "Ghost", {card(0): (True, 100), card(1): (True, 0)}),
    "WrongCard": (wrong_card, "WrongCard", HALF),
    "Overlap under two names": (twice, "Overlap", HALF),
    "Drift": (drift, "Drift", {**FREE, card(2): (True, 0)}),
}


@pytest.mark.parametrize(("plant", "kind", "after"), REPAIRED.values(), ids=REPAIRED)
async def test_safe_repairs_are_made_and_reported(world, plant, kind, after):
    await opened(world)
    await plant(world)

    async with world.works("audit only") as audit:
        await audit.run_once()

        await world.shows(after)
        assert audit.findings.every() == {}
        assert world.metric("croupier_audit_repaired_total", kind) == 1
        assert world.metric("croupier_audit_findings", kind) == 0

        async def recorded() -> list[str]:
            return await divergences(world)

        (event,) = await until_async(recorded, "the Event")
        assert event.startswith(f"GPULedgerDivergence: {kind}: ")
        assert event.endswith("; repaired")

        await audit.run_once()
        assert world.metric("croupier_audit_repaired_total", kind) == 1, "once is enough"


async def test_findings_without_safe_repair_are_reported_while_they_last(world):
    await opened(world)
    await world.plant(await world.runs("first", card(0), percent=80), card(0), percent=80)
    await world.runs("second", card(0), percent=80)

    async with world.works("audit only") as audit:
        for _ in range(2):
            await audit.run_once()
        (finding,) = audit.findings.of(NODE)
        assert (finding.kind, "more than is free" in finding.message) == ("Overlap", True)
        assert world.metric("croupier_audit_findings", "Overlap") == 1

        async def recorded() -> list[str]:
            return await divergences(world)

        assert len(await until_async(recorded, "the Event")) == 1
        await world.ends("second")
        await until_async(lambda: _clean(audit), "the finding to go")
        assert world.metric("croupier_audit_findings", "Overlap") == 0


async def test_strangers_are_reported_while_they_last_and_never_repaired(world):
    await world.node()
    name = await world.device(0)
    await world.manager.open(NODE, Ledger(NODE, (LedgerCard(name, 0),)))
    await world.plant(await world.runs("holder", name), name)
    stranger = await world.pod("stranger")
    await world.bind(stranger)
    await _used_by(world, name, world.holder(stranger), "process python")

    async with world.works("audit only") as audit:
        await audit.run_once()
        assert {finding.message for finding in audit.findings.of(NODE)} == {
            f"pod {stranger.metadata.key} runs a process on card {name}, which it does not hold",
            f"process python runs on card {name} and belongs to no holder",
        }
        assert world.metric("croupier_audit_findings", "Stranger") == 2

        await world.ends("stranger")
        await _used_by(world, name)
        await until_async(lambda: _clean(audit), "the findings to go")
        assert world.metric("croupier_audit_repaired_total", "Stranger") == 0


async def _used_by(world: LedgerEnv, card_id: str, *strangers: str) -> None:
    """What the inventory controller writes from the agent's report."""
    status = {"status": {"strangers": list(strangers)}}
    await world.api.patch(kinds.GPU_DEVICES, card_id, status, subresource="status")


async def _clean(audit: Audit) -> bool:
    await audit.run_once()
    return not audit.findings.every()


async def test_a_pod_missing_in_the_cache_is_no_leak(world):
    await opened(world)
    pod = await world.pod("a", cards="1", ratio="50")
    await world.hold(world.holder(pod), card(0))
    blind = worlds.LedgerEnv(world.api, "kube-system", world.manager)

    async with blind.works("audit only") as audit:
        await audit.run_once()

    assert world.cards() == HALF


async def test_a_reservation_missing_in_the_cache_is_no_leak(world):
    await opened(world)
    spec = {"podKey": f"{world.namespace}/a", "nodeName": NODE, "numCards": 1, "percentPerCard": 50}
    await world.create(kinds.RESERVATIONS, {"metadata": {"name": "rsv"}, "spec": spec})
    await world.plant(f"{world.namespace}/a", card(0), terms=HoldTerms(reservation="rsv"))
    blind = worlds.LedgerEnv(world.api, "kube-system", world.manager)

    async with blind.works("audit only") as audit:
        await audit.run_once()

    assert world.cards() == HALF


@in_the_api_server
async def test_the_node_reservation_status_has_the_findings(world):
    await opened(world)
    await world.plant(await world.runs("first", card(0), percent=80), card(0), percent=80)
    await world.runs("second", card(0), percent=80)

    async with world.works("audit only") as audit, world.tells(audit):
        await audit.run_once()

        async def found() -> Any:
            record = await world.record()
            return record if record is not None and record.status.findings else None

        record = await until_async(found, "the finding in the status")
        (finding,) = record.status.findings
        assert (finding.kind, finding.since is not None) == ("Overlap", True)
        (condition,) = record.status.conditions
        assert (condition.type, condition.status) == ("Consistent", "False")
        assert (
            condition.observed_generation == record.status.observed_generation == record.metadata.generation
        )

        await audit.run_once()
        assert (await world.record()) == record, "what it says already is not written again"


@in_the_api_server
async def test_the_status_names_the_generation_that_the_audit_compared(world):
    await opened(world)
    async with world.works("audit only") as audit, world.tells(audit):
        await audit.run_once()
        audited = await until_async(lambda: observed(world, 1), "the first audit in the status")
        (condition,) = audited.status.conditions
        assert (condition.status, condition.observed_generation) == ("True", 1)

        pod = await world.pod("a", cards="1", ratio="50")
        await world.hold(world.holder(pod), card(0))
        record = await world.record()
        assert record is not None
        (condition,) = record.status.conditions
        assert record.metadata.generation == 2
        assert (record.status.observed_generation, condition.observed_generation) == (1, 1), "not audited yet"

        await audit.run_once()
        audited = await until_async(lambda: observed(world, 2), "the second audit in the status")
        (condition,) = audited.status.conditions
        assert (condition.status, condition.observed_generation) == ("True", 2)
        assert audited.spec == record.spec, "the status costs no write of the ledger"


async def observed(world: LedgerEnv, generation: int) -> Any:
    record = await world.record()
    return record if record is not None and record.status.observed_generation == generation else None


@in_the_api_server
async def test_a_missing_summary_is_written_without_a_change_of_the_ledger(world):
    await opened(world)
    raw = await world.api.get(kinds.NODE_RESERVATIONS.raw, NODE)
    del raw["spec"]["summary"]
    await world.api.update(kinds.NODE_RESERVATIONS.raw, raw)

    async with world.works("audit only") as audit, world.tells(audit):

        async def repaired() -> Any:
            record = await world.record()
            return record if record is not None and record.spec.summary is not None else None

        record = await until_async(repaired, "the summary")
        assert (record.spec.summary.cards, record.spec.summary.holders) == (2, 0)
        assert record.metadata.generation == 3


@in_the_api_server
async def test_the_command_reports_and_repairs(world, cluster):
    await opened(world)
    await leak(world)

    looked = await croupier_audit(cluster)
    assert (looked.exit_code, "Leak" in looked.stdout) == (1, True)
    assert world.cards() == HALF, "nothing is changed without --fix"

    fixed = await croupier_audit(cluster, NODE, "--fix", "-o", "json")
    assert fixed.exit_code == 0, fixed.stderr
    output = msgspec.json.decode(fixed.stdout)
    assert [(item["class"], item["repaired"]) for item in output["findings"]] == [("Leak", True)]
    await world.shows(FREE)

    clean = await croupier_audit(cluster)
    assert (clean.exit_code, clean.stdout) == (0, "No findings on 1 node.\n")
    unknown = await croupier_audit(cluster, "nowhere")
    assert (unknown.exit_code, unknown.stderr) == (1, "croupier: the ledger has no node nowhere.\n")


@pytest.mark.parametrize("world", ["InMemory"], indirect=True)
async def test_without_node_reservations_the_command_counts_from_pods(world, cluster):
    await world.node(gpu=1)
    for name in ("a", "b"):
        await world.runs(name, card(0), percent=80)

    result = await croupier_audit(cluster, "--fix")
    assert result.exit_code == 1
    assert "Nothing was repaired" in result.stdout
    assert "Overlap" in result.stdout


@in_the_api_server
async def test_a_bind_in_flight_is_no_finding_for_the_command(world):
    await opened(world)
    pod = await world.pod("a", cards="1", ratio="50")
    await world.hold(world.holder(pod), card(0))
    await world.bind(pod, (CardGrant(card(0), 50),))

    assert (await inspection.inspect(world.api)).checked == ()
