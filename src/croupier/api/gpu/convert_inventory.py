"""Convert an agent's report, or node labels, to the status of GPUDevice and GPUNodeInventory."""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from croupier.api import meta
from croupier.api.gpu import convert_report
from croupier.api.gpu.agent_report import AgentReport, ReportedHealth
from croupier.api.gpu.device import (
    INDEX_LABEL,
    MIG,
    OCCUPIED,
    PCI,
    VANISHED,
    ComputeCapability,
    DeviceHealth,
    DevicePartitioning,
    GPUDevice,
    Hardware,
    MIGType,
    PCIe,
    Precision,
)
from croupier.api.gpu.node import Driver, InventoryDevice, NodeHardware
from croupier.core.cards import inventory
from croupier.core.cards.census import KnownDevice, NamedCard
from croupier.core.cards.features import GpuFeatures
from croupier.core.cards.inventory import AgentCards
from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.mig import WHOLE_TEXT
from croupier.core.nodes.bootstrap import HEARTBEATS_NEEDED

TEMPERATURE_STEP: Final = 5
"""A temperature is written again only if it differs by this many degrees, because it changes constantly."""
_MAX_TEXT: Final = 253
_HEX: Final = re.compile("[0-9a-f]{4}")
_ADDRESS: Final = re.compile("([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}[.][0-7]")


def reported_cards(report: AgentReport | None) -> AgentCards:
    """The reported cards. `report` is None if there is an agent whose report cannot be decoded."""
    if report is None:
        return AgentCards(readable=False)
    return AgentCards(tuple(map(convert_report.gpu_card, report.cards)), report.driver)


def recorded_card(device: GPUDevice, *, gone_before: datetime) -> KnownDevice:
    """The recorded card. A card that vanished before `gone_before` is not expected back."""
    status, index = device.status, device.metadata.labels.get(INDEX_LABEL, "")
    occupied = meta.condition(status.conditions, OCCUPIED)
    vanished = meta.condition(status.conditions, VANISHED)
    gone = vanished if vanished is not None and vanished.status == "True" else None
    return KnownDevice(
        id=device.metadata.name,
        index=int(index) if index.isascii() and index.isdigit() else None,
        uuid=status.hardware.uuid if status.hardware is not None else "",
        maybe_in_use=occupied is None or occupied.reason != "Withdrawn",
        vanished=gone is not None,
        removal_due=gone is not None and gone.last_transition_time <= gone_before,
    )


def hardware_from_report(card: GpuCard, types: tuple[MIGType, ...]) -> Hardware:
    """The hardware as reported by the node's agent."""
    mig = MIG(
        capable=card.mig_capable,
        strategy="Mixed" if card.mig_capable else "None",
        profiles_supported=tuple(mig_type.name for mig_type in types),
        types=types,
    )
    return _hardware(card, mig)


def hardware_from_labels(card: GpuCard, features: GpuFeatures) -> Hardware:
    """The hardware according to labels and NodeFeature, which describe all cards of a node alike."""
    hardware = _hardware(card, _mig(features))
    return replace(hardware, memory_mib=None) if features.is_partitioned else hardware


def _hardware(card: GpuCard, mig: MIG | None) -> Hardware:
    link = PCIe(generation=card.pcie_generation, width=card.pcie_width)
    major, minor = card.compute_major, card.compute_minor
    return Hardware(
        uuid=card.uuid,
        product=card.product[:_MAX_TEXT],
        pci=_pci(card),
        memory_mib=card.memory_mib or None,
        compute_capability=ComputeCapability(major=major, minor=minor) if major else None,
        precision=Precision(supported=inventory.precisions(major, minor)) if major else None,
        numa_node=card.numa_node,
        pcie=link if link != PCIe() else None,
        mig=mig,
    )


def _pci(card: GpuCard) -> PCI | None:
    """None if the values are invalid: the API server would refuse the whole GPUDevice."""
    if not all(_HEX.fullmatch(text) for text in (card.vendor, card.device, card.class_)):
        return None
    address = card.address if _ADDRESS.fullmatch(card.address) else ""
    return PCI(vendor=card.vendor, device=card.device, class_=card.class_, address=address)


def _mig(features: GpuFeatures) -> MIG | None:
    if features.mig_capable is None:
        return None
    types = tuple(
        MIGType(name=name, memory_mib=profile.memory_mib, multiprocessors=profile.multiprocessors)
        for name, profile in sorted(features.profiles.items())
    )
    names = tuple(mig_type.name for mig_type in types)
    return MIG(
        capable=features.mig_capable, strategy=features.strategy, profiles_supported=names, types=types
    )


def merge_health(before: DeviceHealth | None, reported: ReportedHealth, now: datetime) -> DeviceHealth:
    """The health to write: unchanged if nothing relevant changed.

    Sensor readings change constantly, so they are updated only along with another change.
    """
    was = before or DeviceHealth()
    new = replace(
        was,
        temperature_c=_next_temperature(was.temperature_c, reported.temperature_c),
        ecc_errors_total=reported.ecc_errors,
        xid=reported.xid if reported.xid is not None else was.xid,
        consecutive_healthy=_next_counter(was.consecutive_healthy, reported.clean),
    )
    if not reported.healthy:
        new = _with_error(new, reported.reason or "Unhealthy", reported.message, now)
    if before is not None and new == was:
        return was
    return replace(
        new,
        last_updated=now,
        temperature_c=reported.temperature_c,
        metrics=reported.metrics,
        consecutive_healthy=reported.clean,
    )


def _next_counter(written: int, clean: int) -> int:
    """Write the counter only when it falls or reaches BEATS, because all cards count up after a start."""
    return clean if clean < written or clean >= HEARTBEATS_NEEDED else written


def merge_partitioning(before: DevicePartitioning | None, reported: DevicePartitioning) -> DevicePartitioning:
    """The partitioning to write. An unpartitioned card whose target is `whole` is not a change."""
    return (
        before
        if before is not None and _without_whole_target(before) == _without_whole_target(reported)
        else reported
    )


def _without_whole_target(cut: DevicePartitioning) -> DevicePartitioning:
    return replace(cut, target="") if not cut.slots and cut.target == WHOLE_TEXT else cut


def vanished_health(before: DeviceHealth | None, now: datetime) -> DeviceHealth:
    """The health of a card that has vanished."""
    was = replace(before or DeviceHealth(), consecutive_healthy=0)
    new = _with_error(was, VANISHED, "the card is gone from its node", now)
    return new if new == before else replace(new, last_updated=now)


def _with_error(health: DeviceHealth, reason: str, message: str, now: datetime) -> DeviceHealth:
    if (health.last_error_reason, health.last_error) == (reason[:128], message[:1024]):
        return health
    return replace(health, last_error=message[:1024], last_error_reason=reason[:128], last_error_time=now)


def _next_temperature(before: int | None, now: int | None) -> int | None:
    if before is None or now is None or abs(now - before) >= TEMPERATURE_STEP:
        return now
    return before


def driver(report: AgentReport | None, features: GpuFeatures) -> Driver:
    if report is not None:
        return Driver(version=report.driver, cuda_version=report.cuda, toolkit_installed=report.toolkit)
    return Driver(version=features.driver, cuda_version=features.cuda, toolkit_installed=features.toolkit)


def node_hardware(cards: Iterable[NamedCard]) -> NodeHardware:
    devices = tuple(
        InventoryDevice(
            inventory_id=placed.id,
            index=placed.card.index,
            product=placed.card.product[:_MAX_TEXT],
            memory_mib=placed.card.memory_mib or None,
        )
        for placed in sorted(cards, key=lambda placed: placed.id)
    )
    return NodeHardware(present=bool(devices), devices=devices)
