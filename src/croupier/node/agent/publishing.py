"""What the agent of a node lets others know: its Lease, the labels and conditions of its Node.

The Lease is written at every heartbeat, and at once when something changed that others wait for; readings
alone (a temperature) wait for the next heartbeat. Labels are applied without force: one that somebody else
wrote stays theirs. Nothing is written twice.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog

from croupier.api.core_v1 import Node, NodeCondition, micro_time
from croupier.api.gpu import agent_report
from croupier.api.gpu.agent_report import AgentReport, CardLine
from croupier.api.gpu.device import Cut
from croupier.api.kinds import LEASES, NODES
from croupier.core.nodes.state import Standing
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.errors import Conflict, NotFound

REPORTER: Final = "croupier-node"
"""Who writes all of this, and whom Events come from."""
CALM: Final = 0.5
"""Seconds that two writes of the Lease are apart at least."""
_LABEL: Final = ".metadata.labels."

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    node: str
    namespace: str
    """Where the Lease is."""
    beat: float = 10.0
    """Seconds between heartbeats."""
    calm: float = CALM
    clock: Clock = field(default_factory=SystemClock)


class Publisher:
    def __init__(self, api: Client, settings: Settings, node: Callable[[], Node | None]) -> None:
        self._node = node
        self._api = api.acting_as(REPORTER)
        self._settings = settings
        self._lease: _Written | None = None
        self._labels: tuple[str, Mapping[str, str]] | None = None
        self._conditions: tuple[str, tuple[Standing, ...]] | None = None
        """What was written, each with the UID of the Node: one that comes again has nothing of it."""

    @property
    def due(self) -> bool:
        """It is time for a heartbeat."""
        return self._lease is None or self._since(self._lease.beaten) >= self._settings.beat

    def shown(self, report: AgentReport) -> bool:
        """Whether all that others wait for stands in the Lease already."""
        return self._lease is not None and self._lease.skeleton == skeleton(report)

    def told(self, address: str, cut: Cut) -> bool:
        """Whether the Lease says so of the card, as far as others wait for it."""
        cards = self._lease.skeleton.cards if self._lease is not None else ()
        return any(
            (one.cut.state, one.cut.target) == (cut.state, cut.target)
            for one in cards
            if one.address == address
        )

    async def live(self, report: AgentReport) -> bool:
        """A heartbeat if one is due, or news; False if neither, or if it is too soon for news."""
        before, due = self._lease, self.due
        if before is not None and not due and (self.shown(report) or self._too_soon(before)):
            return False
        text = agent_report.written(report)
        await self._write(text)
        now = self._settings.clock.monotonic()
        beaten = now if due or before is None else before.beaten
        self._lease = _Written(text, skeleton(report), written=now, beaten=beaten)
        return True

    async def last(self) -> AgentReport | None:
        """What was reported last, perhaps by an agent before us."""
        name = agent_report.lease_name(self._settings.node)
        try:
            return agent_report.read(await self._api.get(LEASES, name, namespace=self._settings.namespace))
        except NotFound:
            return None

    async def mark(self, labels: Mapping[str, str]) -> None:
        """Label the Node, where nobody else has labelled it otherwise."""
        node = self._node()
        if node is None or self._labels == (node.metadata.uid, labels):
            return
        body = {"metadata": {**_this(node), "labels": dict(labels)}}
        try:
            await self._api.apply(NODES, body)
        except Conflict as conflict:
            theirs = _disputed(conflict)
            if not theirs & labels.keys():
                raise
            log.info("labels of others are left to them", node=self._settings.node, labels=sorted(theirs))
            body["metadata"]["labels"] = {key: labels[key] for key in labels if key not in theirs}
            await self._api.apply(NODES, body)
        self._labels = node.metadata.uid, dict(labels)

    async def state(self, conditions: tuple[Standing, ...]) -> None:
        """Set our conditions of the Node."""
        node = self._node()
        if node is None or self._conditions == (node.metadata.uid, conditions):
            return
        if not _stands(node, conditions):
            now = self._settings.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            written = [_condition(one, node, now) for one in conditions]
            body = {"metadata": _this(node), "status": {"conditions": written}}
            await self._api.apply(NODES, body, subresource="status", force=True)
        self._conditions = node.metadata.uid, conditions

    def _too_soon(self, before: "_Written") -> bool:
        return self._since(before.written) < self._settings.calm

    def _since(self, moment: float) -> float:
        return self._settings.clock.monotonic() - moment

    async def _write(self, text: str) -> None:
        """Only what changed: of an unchanged report, the time."""
        moment = micro_time(self._settings.clock.now())
        if self._lease is not None:
            patch: dict[str, Any] = {"spec": {"renewTime": moment}}
            if text != self._lease.text:
                patch["metadata"] = {"annotations": {agent_report.CARDS: text}}
            name, namespace = agent_report.lease_name(self._settings.node), self._settings.namespace
            try:
                await self._api.patch(LEASES, name, patch, namespace=namespace)
            except NotFound:
                log.warning("our Lease was deleted", node=self._settings.node)
            else:
                return
        await self._api.apply(LEASES, lease(text, self._settings, moment, self._node()), force=True)


@dataclass(frozen=True, slots=True)
class _Written:
    text: str
    skeleton: AgentReport
    written: float
    beaten: float


def lease(text: str, chosen: Settings, moment: str, node: Node | None) -> dict[str, Any]:
    """It goes with its Node."""
    key, _, kind = agent_report.LEASES.partition("=")
    owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": chosen.node}
    owners = [{**owner, "uid": node.metadata.uid}] if node is not None else []
    return {
        "metadata": {
            "name": agent_report.lease_name(chosen.node),
            "namespace": chosen.namespace,
            "labels": {key: kind},
            "ownerReferences": owners,
            "annotations": {agent_report.NODE: chosen.node, agent_report.CARDS: text},
        },
        "spec": {
            "holderIdentity": chosen.node,
            "leaseDurationSeconds": max(1, round(4 * chosen.beat)),
            "renewTime": moment,
        },
    }


def skeleton(report: AgentReport) -> AgentReport:
    """The report without what changes at every look."""
    cards = tuple(_bones(card) for card in report.cards)
    return msgspec.structs.replace(report, beats=0, cards=cards)


def _bones(card: CardLine) -> CardLine:
    health = msgspec.structs.replace(card.health, temperature_c=None, clean=0, metrics={})
    return msgspec.structs.replace(card, health=health)


def _this(node: Node) -> dict[str, str]:
    """Whoever applies to one that is gone would make it anew, of nothing but our words."""
    return {"name": node.metadata.name, "uid": node.metadata.uid}


def _disputed(conflict: Conflict) -> set[str]:
    """The labels that somebody else applied with another value."""
    fields = (str(cause.get("field", "")) for cause in conflict.causes)
    return {one.removeprefix(_LABEL) for one in fields if one.startswith(_LABEL)}


def _stands(node: Node, wanted: Iterable[Standing]) -> bool:
    now = {one.type: one for one in node.status.conditions}
    return all(
        (found := now.get(one.type)) is not None
        and (found.status, found.reason, found.message) == (one.status, one.reason, one.message)
        for one in wanted
    )


def _condition(one: Standing, node: Node, now: str) -> dict[str, str]:
    known: dict[str, NodeCondition] = {found.type: found for found in node.status.conditions}
    before = known.get(one.type)
    since = now
    if before is not None and before.status == one.status and before.last_transition_time is not None:
        since = before.last_transition_time.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": one.type,
        "status": one.status,
        "reason": one.reason,
        "message": one.message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since,
    }
