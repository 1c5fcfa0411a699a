"""A report wakes only those whom its change concerns, and an old Lease is no heartbeat."""

import asyncio

import pytest

from croupier.api import kinds
from croupier.api.core_v1 import Lease
from croupier.api.gpu import agent_report
from croupier.api.gpu.agent_report import AgentReport, CardHealth, CardLine
from croupier.api.meta import ObjectMeta
from croupier.controllers.bootstrap import reading as bootstrap_reading
from croupier.controllers.cards import reading as cards_reading
from croupier.controllers.inventory.agent_reports import AgentReports
from croupier.controllers.watched import Watched
from croupier.kube.store import Store


class Complete:
    async def synced(self) -> None:
        await asyncio.sleep(0)


class Desk:
    """Agents' Leases, and what was heard of them."""

    def __init__(self) -> None:
        self.store: Store[Lease] = Store(kinds.LEASES)
        self.reports = AgentReports(Watched(self.store, Complete()))
        self.version = 0
        self.heard: list[str] = []
        self.cards: list[str] = []
        self.nodes: list[str] = []
        self.reports.subscribe(self.cards.append, cards_reading.health, heard=self.heard.append)
        self.reports.subscribe(self.nodes.append, bootstrap_reading.word)

    def tells(self, health: CardHealth | None = None, *, driver: str = "550") -> None:
        self.version += 1
        line = CardLine(index=0, address="0000:65:00.0", health=health or CardHealth(clean=3))
        report = AgentReport(node="node-1", driver=driver, cards=(line,))
        annotations = {agent_report.NODE: "node-1", agent_report.CARDS: agent_report.written(report)}
        meta = ObjectMeta(
            name="gpu-node-node-1",
            namespace="d8",
            uid="1",
            resource_version=str(self.version),
            annotations=annotations,
        )
        self.store.put(Lease(metadata=meta))


@pytest.fixture
def desk() -> Desk:
    made = Desk()
    made.tells()
    made.cards.clear()
    made.nodes.clear()
    return made


def test_a_lease_seen_for_the_first_time_is_no_heartbeat(desk: Desk):
    assert desk.heard == []
    desk.tells()
    assert desk.heard == ["node-1"]


def test_a_heartbeat_and_a_temperature_wake_nobody(desk: Desk):
    desk.tells()
    desk.tells(CardHealth(clean=3, temperature_c=71, metrics={"power": "300"}))

    assert (desk.cards, desk.nodes) == ([], [])


def test_a_fault_concerns_the_card_and_a_driver_the_node(desk: Desk):
    desk.tells(CardHealth(healthy=False, reason="TooHot"))
    assert (desk.cards, desk.nodes) == (["node-1"], [])
    desk.tells(CardHealth(healthy=False, reason="TooHot"), driver="")
    assert (desk.cards, desk.nodes) == (["node-1"], ["node-1"])


def test_an_agent_that_is_gone_concerns_all(desk: Desk):
    desk.store.remove(next(iter(desk.store.keys())))

    assert (desk.cards, desk.nodes) == (["node-1"], ["node-1"])
    assert desk.reports.of("node-1") is None
