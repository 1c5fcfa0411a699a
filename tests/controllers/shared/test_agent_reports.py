"""A report notifies only the affected subscribers, and an old Lease is no heartbeat."""

import asyncio

import pytest

from croupier.api import kinds
from croupier.api.core_v1 import Lease
from croupier.api.gpu import agent_report
from croupier.api.gpu.agent_report import AgentReport, CardReport, ReportedHealth
from croupier.api.meta import ObjectMeta
from croupier.controllers.bootstrap import node_snapshot as bootstrap_snapshot
from croupier.controllers.cards import cards_snapshot
from croupier.controllers.shared.agent_reports import AgentReports
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.store import Store


class Complete:
    async def synced(self) -> None:
        await asyncio.sleep(0)


class AgentReportsEnv:
    """Leases of agents, and the recorded notifications."""

    def __init__(self) -> None:
        self.store: Store[Lease] = Store(kinds.LEASES)
        self.reports = AgentReports(Informer(self.store, Complete()))
        self.version = 0
        self.heartbeat: list[str] = []
        self.cards: list[str] = []
        self.nodes: list[str] = []
        self.reports.subscribe(
            self.cards.append, cards_snapshot.relevant_fields, heartbeat=self.heartbeat.append
        )
        self.reports.subscribe(self.nodes.append, bootstrap_snapshot.relevant_fields)

    def report(self, health: ReportedHealth | None = None, *, driver: str = "550") -> None:
        self.version += 1
        line = CardReport(index=0, address="0000:65:00.0", health=health or ReportedHealth(clean=3))
        report = AgentReport(node="node-1", driver=driver, cards=(line,))
        annotations = {
            agent_report.NODE_ANNOTATION: "node-1",
            agent_report.REPORT_ANNOTATION: agent_report.encode(report),
        }
        meta = ObjectMeta(
            name="gpu-node-node-1",
            namespace="d8",
            uid="1",
            resource_version=str(self.version),
            annotations=annotations,
        )
        self.store.put(Lease(metadata=meta))


@pytest.fixture
def env() -> AgentReportsEnv:
    made = AgentReportsEnv()
    made.report()
    made.cards.clear()
    made.nodes.clear()
    return made


def test_a_lease_seen_for_the_first_time_is_no_heartbeat(env: AgentReportsEnv):
    assert env.heartbeat == []
    env.report()
    assert env.heartbeat == ["node-1"]


def test_a_heartbeat_and_a_temperature_notify_no_subscriber(env: AgentReportsEnv):
    env.report()
    env.report(ReportedHealth(clean=3, temperature_c=71, metrics={"power": "300"}))

    assert (env.cards, env.nodes) == ([], [])


def test_a_fault_affects_the_card_and_a_driver_the_node(env: AgentReportsEnv):
    env.report(ReportedHealth(healthy=False, reason="TooHot"))
    assert (env.cards, env.nodes) == (["node-1"], [])
    env.report(ReportedHealth(healthy=False, reason="TooHot"), driver="")
    assert (env.cards, env.nodes) == (["node-1"], ["node-1"])


def test_a_deleted_lease_affects_all(env: AgentReportsEnv):
    env.store.remove(next(iter(env.store.keys())))

    assert (env.cards, env.nodes) == (["node-1"], ["node-1"])
    assert env.reports.of("node-1") is None
