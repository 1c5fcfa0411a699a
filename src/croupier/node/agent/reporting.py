"""Builds the agent's report from the driver snapshot and the progress of repartitioning."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

from croupier.api.gpu.agent_report import AgentReport, CardHealth, CardLine
from croupier.api.gpu.device import Cut, CutSlot, MIGEngines, MIGPartition, MIGType
from croupier.core.cards import mig, vitality
from croupier.core.cards.mig import Kind
from croupier.core.nodes.plan import Step
from croupier.core.nodes.state import Service
from croupier.node.cards.cards import Seen, Sighting, Vital

_MOST_METRICS: Final = 32
_LONGEST: Final = 1024
"""The longest message in characters."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """Consecutive good heartbeats: of the agent, and of each card."""

    beats: int = 0
    clean: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Telling:
    """The parts of the report that do not describe cards."""

    node: str
    source: str
    monitor: str
    """The source of health readings."""
    service: Service
    pulse: Pulse
    troubles: tuple[str, ...] = ()
    boot: str = ""
    """The boot ID of the machine."""


def report(
    context: Telling, seen: Sighting, cards: Mapping[str, Seen], steps: Mapping[str, Step]
) -> AgentReport:
    return AgentReport(
        node=context.node,
        boot=context.boot,
        source=context.source,
        driver=seen.driver,
        cuda=seen.cuda,
        toolkit=seen.toolkit,
        monitored_by=context.monitor,
        beats=context.pulse.beats,
        serves=dict(context.service.serves),
        served_by_others=context.service.others,
        troubles=context.troubles,
        cards=tuple(
            line(card, steps[card_id], context.pulse.clean.get(card_id, 0)) for card_id, card in cards.items()
        ),
    )


def line(card: Seen, step: Step, clean: int) -> CardLine:
    generation, width = card.pcie or (None, None)
    return CardLine(
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
        types=types(card.kinds),
        cut=cut(card, step),
        health=health(card.health, clean),
    )


def cut(card: Seen, step: Step) -> Cut:
    slots = (
        CutSlot(id=slot.id, profile=slot.profile, start=slot.start, size=slot.size, uuid=slot.uuid)
        for slot in card.slots
    )
    return Cut(
        enabled=card.mig_enabled,
        slots=tuple(slots),
        target=step.target,
        state=step.state,
        message=step.message[:_LONGEST],
    )


def health(vital: Vital, clean: int) -> CardHealth:
    return CardHealth(
        healthy=vital.healthy,
        reason=vital.reason,
        message=vital.message[:_LONGEST],
        xid=vital.xid,
        ecc_errors=vital.ecc_errors,
        temperature_c=vital.temperature_c,
        clean=clean,
        metrics=dict(list(vital.metrics.items())[:_MOST_METRICS]),
    )


@lru_cache(maxsize=64)
def types(kinds: tuple[Kind, ...]) -> tuple[MIGType, ...]:
    return tuple(
        MIGType(
            name=kind.name,
            count=mig.how_many(kinds, kind.name),
            memory_mib=kind.memory_mib,
            multiprocessors=kind.multiprocessors,
            partition=MIGPartition(gpu_instance=kind.gpu_instance, compute_instance=kind.compute_instance),
            engines=MIGEngines(copy=kind.copy, encoder=kind.encoder, decoder=kind.decoder, ofa=kind.ofa),
        )
        for kind in kinds
    )


def beaten(before: Pulse, cards: Mapping[str, Seen], most: int) -> Pulse:
    """The counters after one more heartbeat."""
    clean = {
        card_id: min(before.clean.get(card_id, 0) + 1, most) if card.health.healthy else 0
        for card_id, card in cards.items()
    }
    return Pulse(min(before.beats + 1, most), clean)


def between(before: Pulse, cards: Mapping[str, Seen]) -> Pulse:
    """The counters between heartbeats: they do not grow, but a fault resets them at once."""
    return Pulse(
        before.beats,
        {id_: before.clean.get(id_, 0) if card.health.healthy else 0 for id_, card in cards.items()},
    )


def blind(seen: Sighting, why: str) -> Sighting:
    """The last snapshot with all cards unhealthy, for use while the driver does not answer."""
    lost = Vital(healthy=False, reason=vitality.UNREACHABLE, message=why)
    return Sighting(
        cards=tuple(replace(card, health=replace(lost, xid=card.health.xid)) for card in seen.cards)
    )


def troubles(*sources: Iterable[str]) -> tuple[str, ...]:
    return tuple(message[:_LONGEST] for messages in sources for message in messages)
