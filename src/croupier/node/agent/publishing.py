"""Publishes the agent's state: its heartbeat Lease, and labels and conditions of its Node.

The Lease is written at every heartbeat, and at once if the report changed. Sensor readings alone (such as a
temperature) wait for the next heartbeat. Labels are applied without force: a label that another manager owns
stays unchanged. Unchanged values are not written again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog

from croupier.api.core_v1 import Node, NodeCondition, micro_time
from croupier.api.gpu import agent_report
from croupier.api.gpu.agent_report import FIELD_MANAGER, AgentReport, CardReport
from croupier.api.gpu.device import DevicePartitioning
from croupier.api.kinds import LEASES, NODES
from croupier.core.model.condition import DesiredCondition
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import Conflict, NotFound

MIN_WRITE_INTERVAL: Final = 0.5
"""The shortest interval between two writes of the Lease in seconds."""
_LABEL: Final = ".metadata.labels."

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PublisherOptions:
    node: str
    namespace: str
    """The namespace of the Lease."""
    beat: float = 10.0
    """Seconds between heartbeats."""
    min_write_interval: float = MIN_WRITE_INTERVAL
    clock: Clock = field(default_factory=SystemClock)


class Publisher:
    def __init__(self, api: Client, settings: PublisherOptions, node: Callable[[], Node | None]) -> None:
        self._node = node
        self._api = api.with_field_manager(FIELD_MANAGER)
        self._settings = settings
        self._lease: _PublishedLease | None = None
        self._labels: tuple[str, Mapping[str, str]] | None = None
        self._conditions: tuple[str, tuple[DesiredCondition, ...]] | None = None
        """The last written values with the UID of the Node, because a recreated Node has none of them."""

    @property
    def due(self) -> bool:
        """Whether a heartbeat is due."""
        return self._lease is None or self._since(self._lease.beat_at) >= self._settings.beat

    def is_current(self, report: AgentReport) -> bool:
        """Whether the Lease contains the report, apart from sensor readings."""
        return self._lease is not None and self._lease.without_readings == without_readings(report)

    def is_published(self, address: str, cut: DevicePartitioning) -> bool:
        """Whether the Lease contains this state and target of the card's partitioning."""
        cards = self._lease.without_readings.cards if self._lease is not None else ()
        return any(
            (card.cut.state, card.cut.target) == (cut.state, cut.target)
            for card in cards
            if card.address == address
        )

    async def heartbeat(self, report: AgentReport) -> bool:
        """Write the Lease if a heartbeat is due or the report changed, and not too soon. True if written."""
        before, due = self._lease, self.due
        if before is not None and not due and (self.is_current(report) or self._too_soon(before)):
            return False
        text = agent_report.encode(report)
        await self._write(text)
        now = self._settings.clock.monotonic()
        beaten = now if due or before is None else before.beat_at
        self._lease = _PublishedLease(text, without_readings(report), written=now, beat_at=beaten)
        return True

    async def previous_report(self) -> AgentReport | None:
        """The report in the Lease, perhaps from a previous agent."""
        name = agent_report.LEASE.name(self._settings.node)
        try:
            return agent_report.LEASE.decode(
                await self._api.get(LEASES, name, namespace=self._settings.namespace)
            )
        except NotFound:
            return None

    async def apply_labels(self, labels: Mapping[str, str]) -> None:
        """Label the Node, except for labels that another field manager owns."""
        node = self._node()
        if node is None or self._labels == (node.metadata.uid, labels):
            return
        body = {"metadata": {**_identity(node), "labels": dict(labels)}}
        try:
            await self._api.apply(NODES, body)
        except Conflict as conflict:
            theirs = _conflicting_labels(conflict)
            if not theirs & labels.keys():
                raise
            log.info(
                f"labels of node {self._settings.node} that other managers own are kept",
                node=self._settings.node,
                labels=sorted(theirs),
            )
            body["metadata"]["labels"] = {key: labels[key] for key in labels if key not in theirs}
            await self._api.apply(NODES, body)
        self._labels = node.metadata.uid, dict(labels)

    async def apply_conditions(self, conditions: tuple[DesiredCondition, ...]) -> None:
        """Set the agent's conditions of the Node."""
        node = self._node()
        if node is None or self._conditions == (node.metadata.uid, conditions):
            return
        if not _has_conditions(node, conditions):
            now = self._settings.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            written = [_condition(condition, node, now) for condition in conditions]
            body = {"metadata": _identity(node), "status": {"conditions": written}}
            await self._api.apply(NODES, body, subresource="status", force=True)
        self._conditions = node.metadata.uid, conditions

    def _too_soon(self, before: "_PublishedLease") -> bool:
        return self._since(before.written) < self._settings.min_write_interval

    def _since(self, moment: float) -> float:
        return self._settings.clock.monotonic() - moment

    async def _write(self, text: str) -> None:
        """Patch only what changed. If the report is unchanged, that is the renew time."""
        moment = micro_time(self._settings.clock.now())
        if self._lease is not None:
            patch: dict[str, Any] = {"spec": {"renewTime": moment}}
            if text != self._lease.text:
                patch["metadata"] = {"annotations": {agent_report.REPORT_ANNOTATION: text}}
            name, namespace = agent_report.LEASE.name(self._settings.node), self._settings.namespace
            try:
                await self._api.patch(LEASES, name, patch, namespace=namespace)
            except NotFound:
                log.warning(
                    f"the Lease of node {self._settings.node} was deleted and is created again",
                    node=self._settings.node,
                )
            else:
                return
        await self._api.apply(LEASES, lease_body(text, self._settings, moment, self._node()), force=True)


@dataclass(frozen=True, slots=True)
class _PublishedLease:
    text: str
    without_readings: AgentReport
    written: float
    beat_at: float


def lease_body(text: str, chosen: PublisherOptions, moment: str, node: Node | None) -> dict[str, Any]:
    """The Lease. It is owned by the Node and deleted with it."""
    key, _, kind = agent_report.LEASE_SELECTOR.partition("=")
    owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": chosen.node}
    owners = [{**owner, "uid": node.metadata.uid}] if node is not None else []
    body = agent_report.LEASE.body(
        chosen.node,
        chosen.namespace,
        text,
        labels={key: kind},
        seconds=max(1, round(4 * chosen.beat)),
        moment=moment,
    )
    body["metadata"]["ownerReferences"] = owners
    return body


def without_readings(report: AgentReport) -> AgentReport:
    """The report without the values that change at every inspection."""
    cards = tuple(_card_without_readings(card) for card in report.cards)
    return msgspec.structs.replace(report, beats=0, cards=cards)


def _card_without_readings(card: CardReport) -> CardReport:
    health = msgspec.structs.replace(card.health, temperature_c=None, clean=0, metrics={})
    return msgspec.structs.replace(card, health=health)


def _identity(node: Node) -> dict[str, str]:
    """Name and UID. Without the UID, an apply to a deleted Node would create it again."""
    return {"name": node.metadata.name, "uid": node.metadata.uid}


def _conflicting_labels(conflict: Conflict) -> set[str]:
    """The labels that another field manager owns with another value."""
    fields = (str(cause.get("field", "")) for cause in conflict.causes)
    return {path.removeprefix(_LABEL) for path in fields if path.startswith(_LABEL)}


def _has_conditions(node: Node, wanted: Iterable[DesiredCondition]) -> bool:
    current = {condition.type: condition for condition in node.status.conditions}
    return all(
        (now := current.get(desired.type)) is not None
        and (now.status, now.reason, now.message) == (desired.status, desired.reason, desired.message)
        for desired in wanted
    )


def _condition(desired: DesiredCondition, node: Node, now: str) -> dict[str, str]:
    current: dict[str, NodeCondition] = {condition.type: condition for condition in node.status.conditions}
    before = current.get(desired.type)
    since = now
    if before is not None and before.status == desired.status and before.last_transition_time is not None:
        since = before.last_transition_time.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "type": desired.type,
        "status": desired.status,
        "reason": desired.reason,
        "message": desired.message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": since,
    }
