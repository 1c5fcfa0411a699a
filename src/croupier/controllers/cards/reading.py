"""The cards of a node as their life is decided: from their objects, the inventory, and the agent's word."""

from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, get_args

from croupier.api.gpu import GPUDevice, GPUNodeInventory, pooling
from croupier.api.gpu.agent_report import AgentReport, CardLine
from croupier.api.gpu.device import IGNORE, OCCUPANCY, OCCUPIED, VANISHED
from croupier.api.meta import Condition
from croupier.core.cards import card
from croupier.core.cards.course import Standing
from croupier.core.cards.lifecycle import CardFacts, Occupancy, Trouble
from croupier.core.nodes.bootstrap import MISSING

UNSEEN: Final = "its node has no inventory yet"


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of one node."""

    node: str
    devices: tuple[GPUDevice, ...]
    inventory: GPUNodeInventory | None = None
    report: AgentReport | None = None


def standings(look: Look) -> list[Standing]:
    lines = _lines(look.node, look.report)
    node = _node_facts(look)
    return [_standing(device, look, lines.get(_id(device)), node) for device in look.devices]


@dataclass(frozen=True, slots=True)
class _NodeFacts:
    checked: bool
    prepared: bool
    trouble: Trouble | None
    incomplete: str
    beats: int


def _node_facts(look: Look) -> _NodeFacts:
    if look.inventory is None:
        return _NodeFacts(checked=False, prepared=False, trouble=None, incomplete=UNSEEN, beats=0)
    status = look.inventory.status
    told = {one.type: one for one in status.conditions}
    judged = status.bootstrap.phase not in (None, "Disabled")
    found = [told[name] for name in MISSING if name in told and judged]
    failing = next((one for one in found if one.status == "True"), None)
    return _NodeFacts(
        checked=judged,
        prepared=len(found) == len(MISSING) and all(one.status == "False" for one in found),
        trouble=Trouble(failing.type, failing.message) if failing is not None else None,
        incomplete=_incomplete(told),
        beats=status.monitoring.consecutive_heartbeats,
    )


def _incomplete(told: Mapping[str, Condition]) -> str:
    """Only an inventory that was found to be complete is."""
    found = told.get(pooling.INCOMPLETE)
    if found is None:
        return UNSEEN
    if found.status == "False":
        return ""
    return f"the inventory of its node is incomplete: {found.message or found.reason}"


def _standing(device: GPUDevice, look: Look, line: CardLine | None, node: _NodeFacts) -> Standing:
    status = device.status
    beats = node.beats if look.report is None else 0
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
    return Standing(pooling.card(device), status.phase or "Discovered", facts)


def _fault(device: GPUDevice, line: CardLine | None) -> Trouble | None:
    gone = pooling.condition(device.status.conditions, VANISHED)
    if gone is not None and gone.status == "True":
        return Trouble("Vanished", gone.message or "the card is not in its node any more")
    if line is None or line.health.healthy:
        return None
    return Trouble(line.health.reason or "Unhealthy", line.health.message or "the agent finds the card unfit")


def health(report: AgentReport | None) -> Hashable:
    """What of a report concerns the life of cards."""
    if report is None:
        return None
    found = ((one.address, one.index, one.health) for one in report.cards)
    return tuple((*where, one.healthy, one.reason, one.message, one.clean) for *where, one in found)


def occupancy(device: GPUDevice) -> Occupancy:
    found = pooling.condition(device.status.conditions, OCCUPIED)
    if found is None or found.reason not in OCCUPANCY:
        return "Unknown"
    return next(word for word in get_args(Occupancy) if word == found.reason)


def _lines(node: str, report: AgentReport | None) -> dict[str, CardLine]:
    """By the id of the card: made of its address, or of its index where the object knows no more."""
    cards: Iterable[CardLine] = report.cards if report is not None else ()
    found = {}
    for line in cards:
        with suppress(ValueError):  # a name too long for an object: then there is none
            found[card.indexed_id(node, line.index)] = line
            found[card.inventory_id(node, line.address)] = line
    return found


def _id(device: GPUDevice) -> str:
    return device.status.inventory_id or device.metadata.name
