"""Every card with its ledger entry, and as JSON data, for the command line and web pages."""

from dataclasses import dataclass
from typing import Any

import msgspec

from croupier.api import withheld
from croupier.api.gpu import GPUDevice, convert_node
from croupier.api.gpu.device import INDEX_LABEL
from croupier.capacity import ledger_data
from croupier.capacity.snapshot import ClusterSnapshot
from croupier.core.model.card import LedgerCard
from croupier.core.model.withheld import Withheld


@dataclass(frozen=True, slots=True)
class CardRow:
    """A card from the inventory, with its ledger entry if there is one."""

    device: GPUDevice
    held: LedgerCard | None = None

    @property
    def pool(self) -> str:
        return self.device.status.pool_ref.name if self.device.status.pool_ref is not None else ""

    @property
    def withheld(self) -> Withheld | None:
        """Why the card takes no new pods. The card itself shows a change earlier than the ledger."""
        own = convert_node.withheld(self.device)
        if own is not None or self.held is None or self.held.healthy:
            return own
        return self.held.withheld

    @property
    def index(self) -> str:
        return self.device.metadata.labels.get(INDEX_LABEL, "")


def rows(snapshot: ClusterSnapshot) -> list[CardRow]:
    cards = {card.id: card for ledger in snapshot.ledgers.values() for card in ledger.cards}
    rows = [CardRow(device, cards.get(device.metadata.name)) for device in snapshot.devices]
    return sorted(rows, key=lambda row: (row.device.status.node_name or "", _number(row.index)))


def _number(index: str) -> int:
    return int(index) if index.isascii() and index.isdigit() else -1


def as_data(row: CardRow) -> dict[str, Any]:
    status = row.device.status
    return {
        "card": row.device.metadata.name,
        "index": int(row.index) if row.index.isdigit() else None,
        **msgspec.to_builtins(status),
        **msgspec.to_builtins({"withheld": withheld.encode(row.withheld)}),
        "ledger": ledger_data.card(row.held) if row.held is not None else None,
    }
