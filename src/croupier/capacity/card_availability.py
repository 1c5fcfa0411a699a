"""The amounts of every node, together with what the ledger has free of its cards.

Requests alone do not tell what is free of a card: it can be requested whole or by percent, a Reservation
can hold it without a pod, and a faulted or drained card accepts no holder. So the ledger limits what is
available.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from croupier.capacity import snapshot
from croupier.core import availability
from croupier.core.availability import Availability, NodeAmounts, ResourceAmounts
from croupier.core.ledger import overview
from croupier.core.ledger.ledger import Ledger
from croupier.core.ledger.overview import LedgerSummary
from croupier.kube.client.api_client import Client


@dataclass(frozen=True, slots=True)
class ClusterAmounts:
    nodes: Mapping[str, NodeAmounts]
    cordoned: frozenset[str] = frozenset()
    cards: Mapping[str, LedgerSummary] = field(default_factory=dict)
    """The summary of the ledger of every node whose cards are in the ledger."""
    by_ledger: frozenset[str] = frozenset()
    """Resources whose available amount comes from the ledger, on at least one node."""

    def resources(self) -> Collection[str]:
        return {resource for amounts in self.nodes.values() for resource in amounts}

    def total(self, resource: str) -> ResourceAmounts:
        return availability.summed(
            amounts[resource] for amounts in self.nodes.values() if resource in amounts
        )


async def ledgers(api: Client, now: datetime) -> dict[str, Ledger]:
    """The ledgers of the nodes whose cards Croupier records; empty if Croupier is not installed."""
    seen = await snapshot.take(api, now)
    inventoried = {device.status.node_name for device in seen.devices}
    return {
        node: ledger for node, ledger in seen.ledgers.items() if node in seen.recorded or node in inventoried
    }


def combine(index: Availability, recorded: Mapping[str, Ledger]) -> ClusterAmounts:
    """Only resources that a node reports or a pod requests are shown, also if the ledger has others."""
    known = index.resources()
    free = {
        node: {name: units for name, units in overview.free_amounts(ledger).items() if name in known}
        for node, ledger in recorded.items()
        if node in index.nodes()
    }
    return ClusterAmounts(
        nodes={
            node: availability.with_ledger(amounts, free.get(node, {}))
            for node, amounts in index.snapshot().items()
        },
        cordoned=frozenset(node for node in index.nodes() if index.cordoned(node)),
        cards={node: overview.summary(recorded[node]) for node in free},
        by_ledger=frozenset(name for units in free.values() for name in units),
    )
