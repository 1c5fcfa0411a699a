"""The report of a node's agent about its cards, stored as JSON in an annotation of its heartbeat Lease.

The Lease is renewed every few seconds anyway, so the report costs no additional write, and one object
contains both the report and the proof that the agent is alive. Reading it needs no access to the node.
"""

from datetime import datetime
from typing import Final

import msgspec

from croupier.api.gpu.device import DeviceEnforcement, DevicePartitioning, MIGType
from croupier.api.heartbeat import MAX_REPORT_BYTES, ReportLease
from croupier.api.wire import Wire

REPORT_ANNOTATION: Final = "gpu.deckhouse.io/cards"
"""The annotation with the report."""
NODE_ANNOTATION: Final = "gpu.deckhouse.io/node"
"""The annotation with the name of the node. The name of the Lease may be shortened."""
AGENT_LABEL: Final = "gpu.deckhouse.io/agent"
"""The label on the Lease of every node agent."""
LEASE_SELECTOR: Final = f"{AGENT_LABEL}=node"
FIELD_MANAGER: Final = "croupier-node"
"""The field manager of the agent's writes, and the reporting controller of its Events."""
READY_HEARTBEATS: Final = 3
"""The number of consecutive good heartbeats after which a card or node is ready. Counters stop there."""


class ReportedHealth(Wire, frozen=True, kw_only=True):
    """The health of a card. `reason` is one CamelCase word, `message` a sentence."""

    healthy: bool = True
    reason: str = ""
    message: str = ""
    xid: int | None = None
    ecc_errors: int | None = None
    temperature_c: int | None = None
    clean: int = 0
    """The number of consecutive heartbeats without a fault, up to BEATS."""
    metrics: dict[str, str] = msgspec.field(default_factory=dict)


class CardReport(Wire, frozen=True, kw_only=True):
    """One card, as reported by its driver."""

    index: int
    address: str
    """The PCI address, for example 0000:65:00.0."""
    uuid: str = ""
    vendor: str = "10de"
    device: str = ""
    class_: str = msgspec.field(name="class", default="0302")
    product: str = ""
    memory_mib: int = 0
    compute_major: int = 0
    compute_minor: int = 0
    numa_node: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    mig_capable: bool = False
    types: tuple[MIGType, ...] = ()
    """The supported MIG profiles."""
    cut: DevicePartitioning = DevicePartitioning()
    health: ReportedHealth = ReportedHealth()
    idle_since: datetime | None = None
    """Since when no holder has used the card. None if it is used or has no holders."""
    strangers: tuple[str, ...] = ()
    """Who uses the card without holding it: `namespace/name/UID` of a pod, or a process."""
    enforcement: DeviceEnforcement | None = None
    """What enforces shares of the card. None for a card that is not shared."""


class AgentReport(Wire, frozen=True, kw_only=True):
    """The cards of one node, and the resources that its agent serves."""

    node: str
    boot: str = ""
    """The boot ID of the machine. Faults of cards are carried over only within one boot."""
    source: str = ""
    """The card driver of the agent: nvml or simulated."""
    driver: str = ""
    cuda: str = ""
    toolkit: bool = False
    """Whether containers can use the cards."""
    nvidia_default: bool | None = None
    """Whether NVIDIA's container runtime is the node's default. None if unknown."""
    accepts_variable: bool | None = None
    """Whether it accepts NVIDIA_VISIBLE_DEVICES from unprivileged containers. None if unknown."""
    monitored_by: str = ""
    """The source of health readings: dcgm-exporter or nvml."""
    beats: int = 0
    """The number of consecutive heartbeats since the agent started or its driver recovered, up to BEATS."""
    serves: dict[str, int] = msgspec.field(default_factory=dict)
    """The resources registered with the kubelet, and the number of healthy devices of each."""
    served_by_others: tuple[str, ...] = ()
    """The resources that another device plugin already serves."""
    troubles: tuple[str, ...] = ()
    """Human-readable descriptions of problems."""
    cards: tuple[CardReport, ...] = ()


LEASE: Final = ReportLease("gpu-node-", NODE_ANNOTATION, REPORT_ANNOTATION, AgentReport)


def encode(report: AgentReport) -> str:
    """Encode the report for the annotation. If it is too long, leave out the sensor readings."""
    text = msgspec.json.encode(report)
    if len(text) > MAX_REPORT_BYTES:
        bare = tuple(
            msgspec.structs.replace(card, health=msgspec.structs.replace(card.health, metrics={}))
            for card in report.cards
        )
        text = msgspec.json.encode(msgspec.structs.replace(report, cards=bare))
    return text.decode()
