"""The preview of an action as JSON data, for `--dry-run` and the page; docs/ui-api.md describes its fields.

The snapshot may be cut to what a viewer sees: then holders of other namespaces are counted, not named.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from croupier.api import convert_affinity, meta, planned_write
from croupier.api.core_v1 import Pod
from croupier.api.gpu import GPUDevice, GPUPool, convert_pool
from croupier.api.gpu.pool import UNIT_OF_MODE, PoolAllocation
from croupier.api.mps import Reservation
from croupier.api.planned_write import PlannedWrite
from croupier.capacity import fleet_data, ledger_data, reservation_data
from croupier.capacity.fleet_data import InventoryOf
from croupier.capacity.snapshot import ClusterSnapshot
from croupier.core.explanation import card_outcomes, effects, explain, pod_starts, pool_effects
from croupier.core.explanation.card_outcomes import CardsAction, Outcome
from croupier.core.explanation.effects import PoolEffect
from croupier.core.explanation.fleet import Fleet
from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import Ledger
from croupier.core.model import name_list
from croupier.core.model.card import CardGrant, LedgerCard
from croupier.core.model.sharing import Sharing
from croupier.core.pools.assignment import MANUAL_APPROVAL, Approval
from croupier.core.pools.capacity import Capacity

MAX_HOLDERS: Final = 100
"""The largest number of holders that the preview of a pool lists."""


@dataclass(frozen=True, slots=True)
class PreviewInputs:
    seen: ClusterSnapshot
    inventory: InventoryOf
    waiting: Iterable[Pod] = ()
    """Pods without a node, of all namespaces."""
    shows: Callable[[str], bool] = lambda namespace: True
    """Whether the names of the pods of a namespace may be shown."""
    shows_pool: Callable[[str], bool] = lambda name: True
    approval: Approval = MANUAL_APPROVAL


@dataclass(frozen=True, slots=True)
class PreviewedObject:
    write: PlannedWrite
    outcome: Outcome
    sentence: str
    holders: tuple[dict[str, str], ...] = ()
    first: str = ""
    """The action that must be done before this one, if it takes two steps."""


@dataclass(frozen=True, slots=True)
class ActionPreview:
    action: str
    objects: tuple[PreviewedObject, ...]
    pools: tuple[PoolEffect, ...] = ()
    starts: tuple[dict[str, str], ...] = ()
    notes: tuple[str, ...] = field(default=())


def of_cards(action: CardsAction, devices: Iterable[GPUDevice], inputs: PreviewInputs) -> ActionPreview:
    """`devices` are those that the action names."""
    listed = list(devices)
    fleet = fleet_of(listed, inputs)
    found = effects.preview(fleet, _by_id(action, listed))
    starts, notes = _starts(inputs, found.ledgers)
    by_card = {device.card_id: device for device in listed}
    return ActionPreview(
        action.verb,
        tuple(
            PreviewedObject(
                planned_write.card(action, by_card[effect.card]),
                effect.outcome,
                effect.sentence,
                tuple(_holders(effect.held)) if effect.held is not None else (),
                first="unassign" if _takes_two_steps(fleet, action, effect) else "",
            )
            for effect in found.cards
        ),
        tuple(pool for pool in found.pools if inputs.shows_pool(pool.pool)),
        starts,
        (*found.notes, *notes),
    )


def fleet_of(devices: Iterable[GPUDevice], inputs: PreviewInputs) -> Fleet:
    nodes = {device.status.node_name or "" for device in devices}
    return fleet_data.fleet(inputs.seen, nodes, inputs.inventory, inputs.approval)


def ledgers_with(devices: Iterable[GPUDevice], pool: str, inputs: PreviewInputs) -> Mapping[str, Ledger]:
    """The ledgers of the cluster as if these cards had joined the pool."""
    listed = list(devices)
    action = CardsAction("assign", tuple(device.card_id for device in listed), pool)
    return {**inputs.seen.ledgers, **effects.preview(fleet_of(listed, inputs), action).ledgers}


def _by_id(action: CardsAction, devices: Iterable[GPUDevice]) -> CardsAction:
    cards = tuple(device.card_id for device in devices)
    return CardsAction(action.verb, cards, action.pool, action.reason)


def _takes_two_steps(fleet: Fleet, action: CardsAction, effect: effects.CardEffect) -> bool:
    return card_outcomes.in_other_pool(fleet.nodes[effect.node].cards[effect.card], action)


def _holders(card: LedgerCard) -> Iterable[dict[str, str]]:
    """The holders that may be named, and the number of the others."""
    hidden = 0
    for holder in sorted({*card.holders, *(slot.holder for slot in card.slots if slot.holder)}):
        if holder.startswith(card_outcomes.HIDDEN):
            hidden += 1
            continue
        slots = tuple(slot.id for slot in card.slots if slot.holder == holder)
        part = CardGrant(card.id, card.holders.get(holder, 0), slots)
        yield {"pod": "/".join(holder.split("/")[:2]), "share": ledger_data.share(card, part)}
    if hidden:
        yield {"pod": name_list.pods_elsewhere(hidden), "share": ""}


def _starts(
    inputs: PreviewInputs, changed: Mapping[str, Ledger]
) -> tuple[tuple[dict[str, str], ...], list[str]]:
    """The waiting pods that would start, and notes about those that are not listed."""
    if not changed:
        return (), []
    seen = inputs.seen
    nodes = {name: convert_affinity.node_facts(node) for name, node in seen.nodes.items()}
    found = pod_starts.starts(fleet_data.queued(inputs.waiting, seen), nodes, seen.ledgers, changed)
    shown = [start for start in found.pods if inputs.shows(start.pod.key.partition("/")[0])]
    notes = []
    if hidden := len(found.pods) - len(shown):
        notes.append(f"waiting pods of other namespaces that would start: {hidden}")
    if found.left_out:
        notes.append(f"waiting pods that were not considered, because there are many: {found.left_out}")
    starts = tuple({"pod": one.pod.key, "node": one.node, "cards": one.cards} for one in shown)
    return starts, notes


def of_share(
    pool: GPUPool, allocation: PoolAllocation, write: PlannedWrite, inputs: PreviewInputs
) -> ActionPreview:
    """The preview of another allocation of the pool."""
    name, sharing = pool.metadata.name, convert_pool.sharing(allocation)
    members = fleet_data.members(inputs.seen, name)
    fleet = fleet_of(members, inputs)
    cards = {device.card_id: fleet.nodes[device.status.node_name or ""] for device in members}
    facts = fleet_data.pool_facts(inputs.seen, pool, allocation, inputs.inventory)
    effect = pool_effects.share(facts, [node.cards[card] for card, node in cards.items()])
    before = effects.capacity_now(fleet, name)
    after = _shared_capacity(fleet, name, sharing) if effect.outcome != "declined" else before
    unit = UNIT_OF_MODE[allocation.mode]
    change = PoolEffect(
        name,
        fleet.pools[name].unit,
        before,
        before if effect.outcome == "later" else after,
        after,
        unit_after=unit if effect.outcome != "declined" and unit != fleet.pools[name].unit else "",
    )
    holders = [
        one for card, node in cards.items() if (held := node.held(card)) is not None for one in _holders(held)
    ]
    shown = PreviewedObject(write, effect.outcome, effect.sentence, tuple(holders[:MAX_HOLDERS]))
    return ActionPreview("share", (shown,), (change,), notes=effect.notes)


def _shared_capacity(fleet: Fleet, name: str, sharing: Sharing) -> Capacity:
    total = sum(
        pool_effects.shared_capacity(name, node.cards, node.ledger.cards, sharing).total
        for node in fleet.nodes.values()
    )
    return Capacity(total, 0, 0)


def of_confirm(pool: GPUPool, *, messages: bool = True) -> ActionPreview:
    """The preview of a confirmation; `messages` tells whether messages of conditions may be shown."""
    misconfigured = meta.condition(pool.status.conditions, "Misconfigured")
    configured = meta.condition(pool.status.conditions, "Configured")
    is_wrong = misconfigured is not None and misconfigured.status == "True"
    about = misconfigured if is_wrong else configured
    outcome, sentence = pool_effects.confirm(
        misconfigured.reason if misconfigured is not None and is_wrong else "",
        configured.reason if configured is not None else "",
        about.message if about is not None and messages else "see the conditions of the pool",
    )
    notes = () if outcome == "unchanged" else (f"generation {pool.metadata.generation} is confirmed",)
    shown = PreviewedObject(planned_write.confirm(pool), outcome, sentence)
    return ActionPreview("confirm", (shown,), notes=notes)


def of_release(reservation: Reservation, inputs: PreviewInputs) -> ActionPreview:
    """The preview of the deletion of a Reservation."""
    write, node = planned_write.release(reservation), reservation.spec.node_name
    ledger = inputs.seen.ledgers.get(node)
    holding = reservation_data.holding(ledger, reservation)
    if ledger is None or holding is None:
        return ActionPreview("release", (PreviewedObject(write, "now", "is deleted; it holds no cards"),))
    cards = explain.describe_grant(ledger, holding.grant)
    if not holding.held:
        sentence = f"is deleted; pod {holding.pod} runs and keeps {cards} of node {node} until it ends"
        return ActionPreview("release", (PreviewedObject(write, "later", sentence),))
    holder = f"{holding.pod}/{holding.uid}" if holding.uid else holding.pod
    after = ledger_ops.release(ledger, holder)
    starts, notes = _starts(inputs, {node: after})
    shown = PreviewedObject(write, "now", f"is deleted, and frees {cards} of node {node}")
    return ActionPreview("release", (shown,), starts=starts, notes=tuple(notes))


def as_data(found: ActionPreview) -> dict[str, Any]:
    return {
        "action": found.action,
        "objects": [_object(one) for one in found.objects],
        "pools": [_pool(one) for one in found.pools],
        "starts": list(found.starts),
        "notes": list(found.notes),
    }


def _object(found: PreviewedObject) -> dict[str, Any]:
    write = found.write
    data: dict[str, Any] = {
        "kind": write.resource.kind,
        "name": write.name,
        "resourceVersion": write.version,
        "outcome": found.outcome,
        "sentence": found.sentence,
        "holders": list(found.holders),
        "command": write.command,
        "kubectl": write.kubectl,
    }
    if write.namespace is not None:
        data["namespace"] = write.namespace
    return {**data, "first": found.first} if found.first else data


def _pool(effect: PoolEffect) -> dict[str, Any]:
    data: dict[str, Any] = {
        "pool": effect.pool,
        "unit": effect.unit,
        "before": _capacity(effect.before),
        "after": _capacity(effect.after),
    }
    if effect.later != effect.after:
        data["later"] = _capacity(effect.later)
    return {**data, "unitAfter": effect.unit_after} if effect.unit_after else data


def _capacity(amounts: Capacity) -> dict[str, int]:
    return {
        "total": amounts.total,
        "used": amounts.used,
        "booked": amounts.booked,
        "available": amounts.available,
    }
