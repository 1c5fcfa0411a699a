"""Builds the agent's report from the driver snapshot and the progress of repartitioning."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from croupier.api.gpu.agent_report import AgentReport, CardReport, ReportedHealth
from croupier.api.gpu.device import DevicePartition, DevicePartitioning, MIGEngines, MIGPartition, MIGType
from croupier.core.cards import card_health
from croupier.core.model import mig
from croupier.core.model.mig import MigProfile
from croupier.core.nodes.layout_plan import LayoutStep
from croupier.core.nodes.node_conditions import DevicePluginState
from croupier.node.cards.card_driver import DriverSnapshot, ObservedCard, ObservedHealth

_MAX_METRICS: Final = 32
_MAX_MESSAGE: Final = 1024
"""The longest message in characters."""


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


def build_report(
    context: ReportContext,
    seen: DriverSnapshot,
    cards: Mapping[str, ObservedCard],
    steps: Mapping[str, LayoutStep],
) -> AgentReport:
    return AgentReport(
        node=context.node,
        boot=context.boot,
        source=context.source,
        driver=seen.driver,
        cuda=seen.cuda,
        toolkit=seen.toolkit,
        monitored_by=context.monitor,
        beats=context.counters.beats,
        serves=dict(context.service.serves),
        served_by_others=context.service.others,
        troubles=context.troubles,
        cards=tuple(
            card_report(card, steps[card_id], context.counters.clean.get(card_id, 0))
            for card_id, card in cards.items()
        ),
    )


def card_report(card: ObservedCard, step: LayoutStep, clean: int) -> CardReport:
    generation, width = card.pcie or (None, None)
    return CardReport(
        index=card.index,
        address=card.address,
        uuid=card.uuid,
        vendor=card.vendor,
        device=card.device,
        class_=card.class_,
        product=card.product,
        memory_mib=card.memory_mib,
        compute_major=card.compute[0],
        compute_minor=card.compute[1],
        numa_node=card.numa,
        pcie_generation=generation,
        pcie_width=width,
        mig_capable=card.mig_capable,
        types=mig_types(card.kinds),
        cut=partitioning(card, step),
        health=health(card.health, clean),
    )


def partitioning(card: ObservedCard, step: LayoutStep) -> DevicePartitioning:
    slots = (
        DevicePartition(id=slot.id, profile=slot.profile, start=slot.start, size=slot.size, uuid=slot.uuid)
        for slot in card.slots
    )
    return DevicePartitioning(
        enabled=card.mig_enabled,
        slots=tuple(slots),
        target=step.target,
        state=step.state,
        message=step.message[:_MAX_MESSAGE],
    )


def health(vital: ObservedHealth, clean: int) -> ReportedHealth:
    return ReportedHealth(
        healthy=vital.healthy,
        reason=vital.reason,
        message=vital.message[:_MAX_MESSAGE],
        xid=vital.xid,
        ecc_errors=vital.ecc_errors,
        temperature_c=vital.temperature_c,
        clean=clean,
        metrics=dict(list(vital.metrics.items())[:_MAX_METRICS]),
    )


@lru_cache(maxsize=64)
def mig_types(kinds: tuple[MigProfile, ...]) -> tuple[MIGType, ...]:
    return tuple(
        MIGType(
            name=kind.name,
            count=mig.max_devices(kinds, kind.name),
            memory_mib=kind.memory_mib,
            multiprocessors=kind.multiprocessors,
            partition=MIGPartition(gpu_instance=kind.gpu_instance, compute_instance=kind.compute_instance),
            engines=MIGEngines(copy=kind.copy, encoder=kind.encoder, decoder=kind.decoder, ofa=kind.ofa),
        )
        for kind in kinds
    )


def after_heartbeat(
    before: HeartbeatCounters, cards: Mapping[str, ObservedCard], most: int
) -> HeartbeatCounters:
    """The counters after one more heartbeat."""
    clean = {
        card_id: min(before.clean.get(card_id, 0) + 1, most) if card.health.healthy else 0
        for card_id, card in cards.items()
    }
    return HeartbeatCounters(min(before.beats + 1, most), clean)


def between_heartbeats(before: HeartbeatCounters, cards: Mapping[str, ObservedCard]) -> HeartbeatCounters:
    """The counters between heartbeats: they do not grow, but a fault resets them at once."""
    return HeartbeatCounters(
        before.beats,
        {id_: before.clean.get(id_, 0) if card.health.healthy else 0 for id_, card in cards.items()},
    )


def driver_lost(seen: DriverSnapshot, why: str) -> DriverSnapshot:
    """The last snapshot with all cards unhealthy, for use while the driver does not answer."""
    lost = ObservedHealth(healthy=False, reason=card_health.UNREACHABLE, message=why)
    return DriverSnapshot(
        cards=tuple(replace(card, health=replace(lost, xid=card.health.xid)) for card in seen.cards)
    )


def troubles(*sources: Iterable[str]) -> tuple[str, ...]:
    return tuple(message[:_MAX_MESSAGE] for messages in sources for message in messages)
