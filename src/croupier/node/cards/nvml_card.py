"""The hardware and the health of one card, from NVML."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pynvml  # type: ignore[import-untyped]  # it has no types

from croupier.core.cards import card_health
from croupier.core.cards.card_health import HealthReadings
from croupier.core.model.gpu_card import CardHealth, GpuCard
from croupier.node.cards import nvml_driver as driver
from croupier.node.cards.nvml_driver import Handle

_MIB: Final = 1024 * 1024
_CORE_SENSOR: Final = 0
_DEFAULT_CLASS: Final = "0302"


@dataclass(frozen=True, slots=True)
class Board:
    """The properties of a card that never change. The index of `card` is not set."""

    card: GpuCard
    memory_bytes: int
    slowdown_c: int | None


def read_board(handle: Handle, uuid: str, sysfs: Path) -> Board:
    pci = pynvml.nvmlDeviceGetPciInfo(handle)
    address = pci_address(str(pci.busId))
    generation = driver.query(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle)
    width = driver.query(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle)
    memory = driver.query(pynvml.nvmlDeviceGetMemoryInfo, handle)
    memory_bytes = memory.total if memory is not None else 0
    major, minor = driver.query(pynvml.nvmlDeviceGetCudaComputeCapability, handle) or (0, 0)
    linked = bool(generation and width)
    card = GpuCard(
        index=0,
        uuid=uuid,
        address=address,
        vendor=f"{pci.pciDeviceId & 0xFFFF:04x}",
        device=f"{pci.pciDeviceId >> 16:04x}",
        class_=_class(sysfs / address),
        product=_product(str(pynvml.nvmlDeviceGetName(handle))),
        memory_mib=memory_bytes // _MIB,
        compute_major=major,
        compute_minor=minor,
        numa_node=_numa(sysfs / address),
        pcie_generation=generation if linked else None,
        pcie_width=width if linked else None,
        minor=driver.query(pynvml.nvmlDeviceGetMinorNumber, handle),
    )
    slowdown = driver.query(
        pynvml.nvmlDeviceGetTemperatureThreshold, handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
    )
    return Board(card, memory_bytes, slowdown)


def pci_address(bus_id: str) -> str:
    """The address in the kernel's form: four digits of the domain instead of NVML's eight."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _product(name: str) -> str:
    """The name in the form of GPU Feature Discovery: without blanks."""
    return "-".join(name.split())


def _class(folder: Path) -> str:
    """The PCI class: `0x030200` in sysfs is class 0302, which is also the default."""
    written = _read(folder / "class")
    return written[2:6] if written.startswith("0x") and len(written) >= 6 else _DEFAULT_CLASS


def _numa(folder: Path) -> int | None:
    """The NUMA node from sysfs. NVML's value is the NUMA node of the card's own memory."""
    written = _read(folder / "numa_node")
    return int(written) if written.removeprefix("-").isdigit() else None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def observe_health(handle: Handle, known: Board, xid: int | None, counting_xid: int | None) -> CardHealth:
    """`xid` is the last XID error; `counting_xid` is the same while it counts as a fault."""
    temperature = driver.query(pynvml.nvmlDeviceGetTemperature, handle, _CORE_SENSOR)
    ecc = driver.query(
        pynvml.nvmlDeviceGetTotalEccErrors,
        handle,
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_VOLATILE_ECC,
    )
    remapped = driver.query(pynvml.nvmlDeviceGetRemappedRows, handle)
    health = card_health.diagnose(
        HealthReadings(
            xid=counting_xid,
            ecc_errors=ecc,
            remap_failed=bool(remapped and remapped[3]),
            temperature_c=temperature,
            slowdown_c=known.slowdown_c,
        )
    )
    return replace(health, xid=xid, metrics=_metrics(handle))


def _metrics(handle: Handle) -> dict[str, str]:
    power = driver.query(pynvml.nvmlDeviceGetPowerUsage, handle)
    busy = driver.query(pynvml.nvmlDeviceGetUtilizationRates, handle)
    memory = driver.query(pynvml.nvmlDeviceGetMemoryInfo, handle)
    readings = {
        "powerWatts": None if power is None else round(power / 1000),
        "utilizationPercent": None if busy is None else busy.gpu,
        "memoryUsedMiB": None if memory is None else memory.used // _MIB,
    }
    return {name: str(value) for name, value in readings.items() if value is not None}
