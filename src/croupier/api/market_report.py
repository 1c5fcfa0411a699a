"""The report of a node's market agent, stored as JSON in an annotation of the agent's heartbeat Lease.

The Lease is written every few seconds anyway, so the report costs no additional write. It also exists in
dry-run mode, when there are no PodAllocations. Reading it needs no access to the node, only permission to
read Leases in the namespace of the installation.
"""

from datetime import datetime
from typing import Final

import msgspec

from croupier.api.heartbeat import MAX_REPORT_BYTES, ReportLease
from croupier.api.wire import Wire

REPORT_ANNOTATION: Final = "mbcas.io/books"
"""The annotation with the report."""
NODE_ANNOTATION: Final = "mbcas.io/node"
"""The annotation with the name of the node. The name of the Lease may be shortened."""
AGENT_LABEL: Final = "mbcas.io/market"
"""The label on the Lease of every market agent."""
ACTIVE: Final = "agent"
"""The label value of an agent that changes limits."""
DRY_RUN: Final = "dry-run"
"""The label value of an agent in dry-run mode, which only reports what it would do."""
LEASE_SELECTOR: Final = f"{AGENT_LABEL} in ({ACTIVE},{DRY_RUN})"


class SupplyLine(Wire, frozen=True, kw_only=True):
    """One market of the node. CPU amounts are quantities; `price` is the weight that 10m of CPU costs."""

    name: str
    supply: str
    given: str
    left: str = "0"
    short: str = "0"
    price: float = 0.0


class MarketPodLine(Wire, frozen=True, kw_only=True):
    """One pod. `limit` is the limit last written for it, `target` the limit that the market computed."""

    pod: str
    book: str = ""
    limit: str = "0"
    applied: str = ""
    target: str = "0"
    original: str = "0"
    usage: str = "0"
    demand: str = "0"
    throttled_percent: float = 0.0
    moves: bool = False
    why: str = ""


class MarketReport(Wire, frozen=True, kw_only=True):
    node: str
    capacity: str
    at: datetime | None = None
    strict: bool = False
    dry_run: bool = False
    factor: float = 1.0
    """The factor by which the CPU of latency-sensitive pods may be overcommitted."""
    outside: str = "0"
    """The CPU that pods outside the market use."""
    books: tuple[SupplyLine, ...] = ()
    pods: tuple[MarketPodLine, ...] = ()


LEASE: Final = ReportLease("market-", NODE_ANNOTATION, REPORT_ANNOTATION, MarketReport)


def encode(report: MarketReport) -> str:
    """Encode the report for the annotation. If it is too long, leave out the explanations, then the pods."""
    text = msgspec.json.encode(report)
    if len(text) > MAX_REPORT_BYTES:
        short = tuple(msgspec.structs.replace(pod, why="") for pod in report.pods)
        text = msgspec.json.encode(msgspec.structs.replace(report, pods=short))
    if len(text) > MAX_REPORT_BYTES:
        text = msgspec.json.encode(msgspec.structs.replace(report, pods=()))
    return text.decode()
