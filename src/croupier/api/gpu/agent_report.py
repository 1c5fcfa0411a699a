"""What the agent of a node tells of its cards, and where: as JSON in an annotation of its heartbeat Lease.

The Lease is renewed every few seconds anyway, so telling more costs no further write, and one object says
both what the agent sees and that it still looks. Whoever reads it needs no way to the node.
"""

from typing import Final

import msgspec

from croupier.api import heartbeat
from croupier.api.core_v1 import Lease
from croupier.api.gpu.device import Cut, MIGType
from croupier.api.wire import Wire

CARDS: Final = "gpu.deckhouse.io/cards"
"""The annotation with the report."""
NODE: Final = "gpu.deckhouse.io/node"
"""The annotation with the node's name: a Lease's own may be shortened."""
AGENT: Final = "gpu.deckhouse.io/agent"
"""The label of every agent's Lease."""
LEASES: Final = f"{AGENT}=node"
BEATS: Final = 3
"""Good heartbeats in a row that make a card or node fit; they are not counted further."""

_PREFIX: Final = "gpu-node-"


class CardHealth(Wire, frozen=True, kw_only=True):
    """`healthy` is the agent's verdict on the hardware; `reason` one word, `message` a sentence."""

    healthy: bool = True
    reason: str = ""
    message: str = ""
    xid: int | None = None
    ecc_errors: int | None = None
    temperature_c: int | None = None
    clean: int = 0
    """Heartbeats without a fault in a row, up to BEATS."""
    metrics: dict[str, str] = msgspec.field(default_factory=dict)


class CardLine(Wire, frozen=True, kw_only=True):
    """One card as its driver tells of it."""

    index: int
    address: str
    """On the PCI bus, such as 0000:65:00.0."""
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
    """What it can be cut into."""
    cut: Cut = Cut()
    health: CardHealth = CardHealth()


class AgentReport(Wire, frozen=True, kw_only=True):
    """What one node has, and what its agent serves of it."""

    node: str
    boot: str = ""
    """Which boot of the machine this was told in: what a card went through ends with it."""
    source: str = ""
    """Where the cards come from: nvml or simulated."""
    driver: str = ""
    cuda: str = ""
    toolkit: bool = False
    """Whether containers can reach the cards."""
    monitored_by: str = ""
    """Where readings come from: dcgm-exporter, or nvml."""
    beats: int = 0
    """Heartbeats in a row since the agent started or its driver came back, up to BEATS."""
    serves: dict[str, int] = msgspec.field(default_factory=dict)
    """Resources it registered with the kubelet, and how many healthy devices of each."""
    served_by_others: tuple[str, ...] = ()
    """Resources it leaves to a device plugin that was there before."""
    troubles: tuple[str, ...] = ()
    """What a person should know, in sentences."""
    cards: tuple[CardLine, ...] = ()


def lease_name(node: str) -> str:
    return heartbeat.name(_PREFIX, node)


def node_of(lease: Lease) -> str:
    return heartbeat.node_of(lease, NODE, _PREFIX)


def written(report: AgentReport) -> str:
    """For the annotation; without the readings where it would be too long."""
    text = msgspec.json.encode(report)
    if len(text) > heartbeat.MOST_BYTES:
        bare = tuple(
            msgspec.structs.replace(card, health=msgspec.structs.replace(card.health, metrics={}))
            for card in report.cards
        )
        text = msgspec.json.encode(msgspec.structs.replace(report, cards=bare))
    return text.decode()


def read(lease: Lease) -> AgentReport | None:
    """None where there is none, or none that can be read: another version may have written it."""
    try:
        return msgspec.json.decode(lease.metadata.annotations.get(CARDS, ""), type=AgentReport)
    except msgspec.MsgspecError:
        return None
