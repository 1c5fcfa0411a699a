"""The inputs of card decisions: GPUDevices, inventory and agent report of a node."""

from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from croupier.api import meta
from croupier.api.gpu import GPUDevice, GPUNodeInventory, convert_pool
from croupier.api.gpu.agent_report import AgentReport, CardReport
from croupier.api.gpu.convert_pool import occupancy
from croupier.api.gpu.device import IGNORE, VANISHED
from croupier.api.gpu.node import INCOMPLETE
from croupier.api.meta import Condition
from croupier.core.cards.card_decision import CurrentCard
from croupier.core.cards.lifecycle import CardFacts, CardTrouble
from croupier.core.model import card_name
from croupier.core.nodes.bootstrap import MISSING
from croupier.core.pools.assignment import AssignableCard

NO_INVENTORY: Final = "its node has no inventory yet"


@dataclass(frozen=True, slots=True)
class CardsSnapshot:
    """The objects of one node."""

    node: str
    devices: tuple[GPUDevice, ...]
    inventory: GPUNodeInventory | None = None
    report: AgentReport | None = None
    held_pools: Mapping[str, str] = field(default_factory=dict)
    """The pools in which pods hold cards, by card, as the ledger has them."""


def current_cards(snapshot: CardsSnapshot) -> list[CurrentCard]:
    lines = _lines(snapshot.node, snapshot.report)
    node = _node_facts(snapshot)
    return [_current_card(device, snapshot, lines.get(device.card_id), node) for device in snapshot.devices]


@dataclass(frozen=True, slots=True)
class _NodeFacts:
    checked: bool
    prepared: bool
    trouble: CardTrouble | None
    incomplete: str
    beats: int


def _node_facts(snapshot: CardsSnapshot) -> _NodeFacts:
    if snapshot.inventory is None:
        return _NodeFacts(checked=False, prepared=False, trouble=None, incomplete=NO_INVENTORY, beats=0)
    status = snapshot.inventory.status
    by_type = {condition.type: condition for condition in status.conditions}
    checked = status.bootstrap.phase not in (None, "Disabled")
    missing = [by_type[name] for name in MISSING if name in by_type and checked]
    failing = next((condition for condition in missing if condition.status == "True"), None)
    return _NodeFacts(
        checked=checked,
        prepared=len(missing) == len(MISSING) and all(cond.status == "False" for cond in missing),
        trouble=CardTrouble(failing.type, failing.message) if failing is not None else None,
        incomplete=_incomplete(by_type),
        beats=status.monitoring.consecutive_heartbeats,
    )


def _incomplete(by_type: Mapping[str, Condition]) -> str:
    """Why the inventory is incomplete; a missing condition counts as incomplete."""
    condition = by_type.get(INCOMPLETE)
    if condition is None:
        return NO_INVENTORY
    if condition.status == "False":
        return ""
    return f"the inventory of its node is incomplete: {condition.message or condition.reason}"


def _current_card(
    device: GPUDevice, snapshot: CardsSnapshot, line: CardReport | None, node: _NodeFacts
) -> CurrentCard:
    status = device.status
    beats = node.beats if snapshot.report is None else 0
    facts = CardFacts(
        managed=status.managed is not False,
        ignored=device.metadata.labels.get(IGNORE) == "true",
        checked=node.checked,
        prepared=node.prepared,
        trouble=node.trouble,
        fault=_fault(device, line),
        clean=line.health.clean if line is not None else beats,
        incomplete=node.incomplete,
        occupancy=occupancy(device),
    )
    card = _restored(convert_pool.card(device), facts, snapshot.held_pools.get(device.card_id, ""))
    return CurrentCard(card, status.phase or "Discovered", facts, declined=status.declined is not None)


def _restored(card: AssignableCard, facts: CardFacts, pool: str) -> AssignableCard:
    """The card in the pool of the pods that hold it, if its record was lost with its Node and created again.

    A card that a user removes from its pool keeps `poolRef` until no pod holds it.
    """
    if card.pool or not pool or not facts.held:
        return card
    return replace(card, pool=pool, annotation=card.annotation or pool, restored=not card.annotation)


def _fault(device: GPUDevice, line: CardReport | None) -> CardTrouble | None:
    gone = meta.condition(device.status.conditions, VANISHED)
    if gone is not None and gone.status == "True":
        return CardTrouble("Vanished", gone.message or "the card is gone from its node")
    if line is None or line.health.healthy:
        return None
    return CardTrouble(
        line.health.reason or "Unhealthy", line.health.message or "the agent reports the card as unhealthy"
    )


def relevant_fields(report: AgentReport | None) -> Hashable:
    """The fields of a report that card decisions use."""
    if report is None:
        return None
    return tuple(
        (
            card.address,
            card.index,
            card.health.healthy,
            card.health.reason,
            card.health.message,
            card.health.clean,
        )
        for card in report.cards
    )


def _lines(node: str, report: AgentReport | None) -> dict[str, CardReport]:
    """The reported cards by id, from PCI address and from index."""
    cards: Iterable[CardReport] = report.cards if report is not None else ()
    lines = {}
    for line in cards:
        with suppress(ValueError):  # the name is too long, so no object exists
            lines[card_name.indexed_id(node, line.index)] = line
            lines[card_name.inventory_id(node, line.address)] = line
    return lines
