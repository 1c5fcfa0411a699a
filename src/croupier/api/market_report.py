"""What an agent tells of its node's market, and where: as JSON in an annotation of its heartbeat Lease.

The Lease is written every few seconds anyway, so it costs no further write; it is there in dry-run mode, when
there are no PodAllocations to look at; and whoever may read Leases in our namespace may see it, without a way
to the node.
"""

from datetime import datetime
from typing import Final

import msgspec

from croupier.api import heartbeat
from croupier.api.core_v1 import Lease
from croupier.api.wire import Wire

BOOKS: Final = "mbcas.io/books"
"""The annotation."""
NODE: Final = "mbcas.io/node"
"""The annotation with the node's name: a Lease's own may be shortened."""
AGENT: Final = "mbcas.io/market"
"""The label of every agent's Lease;"""
TRADING: Final = "agent"
"""of one that moves limits,"""
WATCHING: Final = "dry-run"
"""and of one that only shows what it would do."""
LEASES: Final = f"{AGENT} in ({TRADING},{WATCHING})"

_PREFIX: Final = "market-"


class BookLine(Wire, frozen=True, kw_only=True):
    """CPU as quantities. `price`: weight that a quantum of 10m costs."""

    name: str
    supply: str
    given: str
    left: str = "0"
    short: str = "0"
    price: float = 0.0


class PodLine(Wire, frozen=True, kw_only=True):
    """`limit` is what it was last told to have, `target` what its book would give it."""

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


class Report(Wire, frozen=True, kw_only=True):
    node: str
    capacity: str
    at: datetime | None = None
    strict: bool = False
    dry_run: bool = False
    factor: float = 1.0
    """How far latency pods may be overcommitted."""
    outside: str = "0"
    """What everything that takes no part uses."""
    books: tuple[BookLine, ...] = ()
    pods: tuple[PodLine, ...] = ()


def lease_name(node: str) -> str:
    return heartbeat.name(_PREFIX, node)


def node_of(lease: Lease) -> str:
    return heartbeat.node_of(lease, NODE, _PREFIX)


def written(report: Report) -> str:
    """For the annotation; without the sentences where it would be too long, or without the pods."""
    text = msgspec.json.encode(report)
    if len(text) > heartbeat.MOST_BYTES:
        short = tuple(msgspec.structs.replace(one, why="") for one in report.pods)
        text = msgspec.json.encode(msgspec.structs.replace(report, pods=short))
    if len(text) > heartbeat.MOST_BYTES:
        text = msgspec.json.encode(msgspec.structs.replace(report, pods=()))
    return text.decode()


def read(lease: Lease) -> Report | None:
    """None where there is none, or none that can be read: another version may have written it."""
    try:
        return msgspec.json.decode(lease.metadata.annotations.get(BOOKS, ""), type=Report)
    except msgspec.MsgspecError:
        return None
