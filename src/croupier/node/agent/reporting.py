"""Builds the agent's report from the driver snapshot and the progress of repartitioning."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from croupier.api.gpu import convert_report
from croupier.api.gpu.agent_report import AgentReport
from croupier.core.cards import card_health
from croupier.core.model.enforcement import CardEnforcement
from croupier.core.model.gpu_card import CardHealth, GpuCard
from croupier.core.nodes.layout_plan import LayoutStep
from croupier.core.nodes.node_conditions import DevicePluginState
from croupier.node.cards.card_driver import DriverSnapshot


@dataclass(frozen=True, slots=True)
class HeartbeatCounters:
    """Consecutive good heartbeats: of the agent, and of each card."""

    beats: int = 0
    clean: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReportContext:
    """The parts of the report that do not describe cards."""

    node: str
    source: str
    monitor: str
    """The source of health readings."""
    service: DevicePluginState
    counters: HeartbeatCounters
    troubles: tuple[str, ...] = ()
    boot: str = ""
    """The boot ID of the machine."""
    enforcement: Mapping[str, CardEnforcement | None] = field(default_factory=dict)
    """What enforces shares, by card."""


def build_report(
    context: ReportContext,
    seen: DriverSnapshot,
    cards: Mapping[str, GpuCard],
    steps: Mapping[str, LayoutStep],
) -> AgentReport:
    return AgentReport(
        node=context.node,
        boot=context.boot,
        source=context.source,
        driver=seen.driver,
        cuda=seen.cuda,
        toolkit=seen.toolkit,
        nvidia_default=seen.nvidia_default,
        accepts_variable=seen.accepts_variable,
        monitored_by=context.monitor,
        beats=context.counters.beats,
        serves=dict(context.service.serves),
        served_by_others=context.service.others,
        troubles=context.troubles,
        cards=tuple(
            convert_report.card_report(
                card,
                steps[card_id],
                context.counters.clean.get(card_id, 0),
                context.enforcement.get(card_id),
            )
            for card_id, card in cards.items()
        ),
    )


def after_heartbeat(before: HeartbeatCounters, cards: Mapping[str, GpuCard], most: int) -> HeartbeatCounters:
    """The counters after one more heartbeat."""
    clean = {
        card_id: min(before.clean.get(card_id, 0) + 1, most) if card.health.healthy else 0
        for card_id, card in cards.items()
    }
    return HeartbeatCounters(min(before.beats + 1, most), clean)


def between_heartbeats(before: HeartbeatCounters, cards: Mapping[str, GpuCard]) -> HeartbeatCounters:
    """The counters between heartbeats: they do not grow, but a fault resets them at once."""
    return HeartbeatCounters(
        before.beats,
        {id_: before.clean.get(id_, 0) if card.health.healthy else 0 for id_, card in cards.items()},
    )


def driver_lost(seen: DriverSnapshot, why: str) -> DriverSnapshot:
    """The last snapshot with all cards unhealthy, for use while the driver does not answer."""
    lost = CardHealth(healthy=False, reason=card_health.UNREACHABLE, message=why)
    return DriverSnapshot(
        cards=tuple(replace(card, health=replace(lost, xid=card.health.xid)) for card in seen.cards),
        nvidia_default=seen.nvidia_default,
        accepts_variable=seen.accepts_variable,
    )


def troubles(*sources: Iterable[str]) -> tuple[str, ...]:
    return tuple(message[: convert_report.MAX_MESSAGE] for messages in sources for message in messages)
