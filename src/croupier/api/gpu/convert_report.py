"""Convert cards to the agent's report, and back."""

from functools import lru_cache
from typing import Final

import msgspec
from msgspec.structs import replace

from croupier.api.gpu.agent_report import CardReport, ReportedHealth
from croupier.api.gpu.device import (
    DeviceEnforcement,
    DevicePartition,
    DevicePartitioning,
    MIGEngines,
    MIGPartition,
    MIGType,
)
from croupier.core.model import mig
from croupier.core.model.enforcement import CardEnforcement
from croupier.core.model.gpu_card import CardHealth, GpuCard
from croupier.core.model.mig import MigProfile
from croupier.core.nodes.layout_plan import LayoutStep

MAX_MESSAGE: Final = 1024
"""The longest message in characters."""
_MAX_METRICS: Final = 32


def card_report(
    card: GpuCard, step: LayoutStep, clean: int, enforcement: CardEnforcement | None = None
) -> CardReport:
    """`clean` is the number of consecutive heartbeats without a fault."""
    return replace(
        msgspec.convert(card, CardReport, from_attributes=True),
        types=mig_types(card.kinds),
        cut=partitioning(card, step),
        health=health(card.health, clean),
        enforcement=enforced(enforcement) if enforcement is not None else None,
    )


def enforced(by: CardEnforcement) -> DeviceEnforcement:
    return DeviceEnforcement(by=by.by, ready=by.ready, message=by.message[:MAX_MESSAGE])


def gpu_card(report: CardReport) -> GpuCard:
    """The card without its MIG profiles and devices."""
    return msgspec.convert(report, GpuCard, from_attributes=True)


def partitioning(card: GpuCard, step: LayoutStep) -> DevicePartitioning:
    slots = (
        DevicePartition(id=slot.id, profile=slot.profile, start=slot.start, size=slot.size, uuid=slot.uuid)
        for slot in card.slots
    )
    return DevicePartitioning(
        enabled=card.mig_enabled,
        slots=tuple(slots),
        target=step.target,
        state=step.state,
        message=step.message[:MAX_MESSAGE],
    )


def health(observed: CardHealth, clean: int) -> ReportedHealth:
    return replace(
        msgspec.convert(observed, ReportedHealth, from_attributes=True),
        message=observed.message[:MAX_MESSAGE],
        clean=clean,
        metrics=dict(list(observed.metrics.items())[:_MAX_METRICS]),
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
