"""Why a pod is placed or pending: read from the cluster, and as JSON data for command line and web pages."""

import asyncio
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from croupier.api import convert_affinity, convert_pod, kinds, meta
from croupier.api.core_v1 import Pod
from croupier.capacity import ledger_data, rejected_pod, snapshot
from croupier.capacity.rejected_pod import RejectedPod
from croupier.capacity.snapshot import ClusterSnapshot
from croupier.core.explanation import explain, own_pod
from croupier.core.explanation import what_if as simulation
from croupier.core.explanation.explain import PlacementExplanation, PodHold, SchedulingInputs
from croupier.core.explanation.own_pod import PoolAmount
from croupier.core.explanation.what_if import WhatIfResult
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card_request import CardRequest
from croupier.core.model.pod_view import PodView
from croupier.core.placement.card_selection import Strategy
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import Forbidden, KubeError, NotFound


@dataclass(frozen=True, slots=True)
class ExplainResult:
    """The explanation, with details from the pod's status."""

    found: PlacementExplanation
    world: SchedulingInputs
    scheduler: str = ""
    """The scheduler's last message about a pending pod."""
    since: datetime | None = None
    """When the pod was bound."""
    unreadable: tuple[str, ...] = ()
    """Sentences about what the user may not read."""


class PodNotFound(KubeError):
    """Neither the pod nor an owner that could not create it exists in the namespace."""

    def __init__(self, namespace: str, name: str, elsewhere: tuple[str, ...] = ()) -> None:
        there = f"; there is a pod {name} in namespace {' and '.join(elsewhere)}" if elsewhere else ""
        super().__init__(f"there is no pod {name} in namespace {namespace}{there}")


async def read(api: Client, namespace: str, name: str, now: datetime) -> ExplainResult | RejectedPod:
    """The explanation of a pod, or of the rejection that its owner received if it does not exist."""
    try:
        return await _read_pod(api, namespace, name, now)
    except NotFound:
        if absent := await rejected_pod.find(api, namespace, name):
            return absent
        elsewhere = await _namespaces_with_pod(api, name)
    raise PodNotFound(namespace, name, elsewhere)


async def _namespaces_with_pod(api: Client, name: str) -> tuple[str, ...]:
    """Other namespaces that have a pod of this name; none if the user may not list their pods."""
    try:
        pods = await api.list(kinds.PODS, Selection(fields=f"metadata.name={name}"))
    except Forbidden:
        return ()
    return tuple(sorted(pod.metadata.namespace for pod in pods.items))


async def _read_pod(api: Client, namespace: str, name: str, now: datetime) -> ExplainResult:
    pod, taken = await asyncio.gather(
        api.get(kinds.PODS, name, namespace=namespace), snapshot.take(api, now, member_of=namespace)
    )
    view = convert_pod.view(pod)
    world = scheduling_inputs(taken, pool_strategy(taken, view.wants))
    scheduled = meta.condition(pod.status.conditions, "PodScheduled")
    is_bound = scheduled is not None and scheduled.status == "True"
    message = "" if scheduled is None or is_bound else _unescaped(scheduled.message)
    needs = convert_affinity.pod_needs(pod)
    found = (
        own_pod.explain(view, needs, message=message, pools=pool_amounts(taken, view.wants))
        if taken.incomplete
        else explain.explain(view, needs, world)
    )
    return ExplainResult(
        with_pool_notes(found, taken),
        world,
        scheduler=message,
        since=scheduled.last_transition_time if scheduled is not None and is_bound else None,
        unreadable=taken.unreadable,
    )


def _unescaped(message: str) -> str:
    """Undo the doubled percent signs that kube-scheduler writes into the pod's status."""
    return message.replace("%%", "%")


def scheduling_inputs(seen: ClusterSnapshot, strategy: Strategy) -> SchedulingInputs:
    return SchedulingInputs(
        {name: convert_affinity.node_facts(node) for name, node in seen.nodes.items()}, seen.ledgers, strategy
    )


def pool_strategy(seen: ClusterSnapshot, wants: CardRequest) -> Strategy:
    """The strategy of the requested pool, else the default: the snapshot does not contain the setting."""
    requested = {want.pool for want in wants if want.pool}
    strategies = {pool.metadata.name: pool.spec.scheduling.strategy for pool in seen.pools}
    return next((chosen for name in sorted(requested) if (chosen := strategies.get(name))), "Spread")


def with_pool_notes(found: PlacementExplanation, seen: ClusterSnapshot) -> PlacementExplanation:
    """Add why the requested pools serve no pods now, in the words of their condition Available."""
    requested = {want.pool for want in found.pod.wants if want.pool}
    notes = tuple(
        f"pool {pool.metadata.name} is not available: {available.message}"
        for pool in seen.pools
        if pool.metadata.name in requested
        and (available := meta.condition(pool.status.conditions, "Available")) is not None
        and available.status == "False"
    )
    return replace(found, notes=(*found.notes, *notes)) if found.state == "Pending" else found


def pool_amounts(seen: ClusterSnapshot, wants: CardRequest) -> tuple[PoolAmount, ...]:
    """What the requested pools have left, for users who may read pools but not the ledgers."""
    requested = {want.pool for want in wants if want.pool}
    return tuple(
        PoolAmount(pool.metadata.name, capacity.available, capacity.total, capacity.unit or "")
        for pool in seen.pools
        if pool.metadata.name in requested and (capacity := pool.status.capacity) is not None
    )


def as_data(answer: ExplainResult | RejectedPod) -> dict[str, Any]:
    """The answer as JSON data; docs/commands.md describes its fields."""
    if isinstance(answer, RejectedPod):
        return _rejection_data(answer)
    found, world = answer.found, answer.world
    pod = found.pod
    return {
        "pod": pod.key,
        "uid": pod.uid,
        "state": found.state,
        "sentence": found.sentence,
        "asks": [str(want) for want in pod.wants],
        "node": pod.node or None,
        "since": answer.since,
        "scheduler": answer.scheduler or None,
        "notes": list(found.notes),
        "holds": _holds(found.seat, world),
        "fits": list(found.fits),
        "refusals": [
            {"reason": group.reason, "count": len(group.nodes), "nodes": list(group.nodes)}
            for group in found.refusals
        ],
        "nearest": [
            {"node": miss.node, "detail": miss.detail, "cards": ledger_data.cards(_ledger(world, miss.node))}
            for miss in found.nearest
        ],
        "instead": [
            {"asks": [str(want) for want in alternative.wants], "node": alternative.node}
            for alternative in found.instead
        ],
    }


def _holds(seat: PodHold | None, world: SchedulingInputs) -> dict[str, Any] | None:
    if seat is None:
        return None
    return {
        "node": seat.node,
        "state": "Held" if seat.held else "Bound",
        "until": seat.until,
        "reservation": seat.reservation or None,
        "cards": ledger_data.parts(_ledger(world, seat.node), seat.grant),
    }


def _ledger(world: SchedulingInputs, node: str) -> Ledger:
    return world.ledgers.get(node) or Ledger(node)


def _rejection_data(absent: RejectedPod) -> dict[str, Any]:
    return {
        "pod": absent.key,
        "state": "Absent",
        "sentence": absent.sentence,
        "owner": absent.owner,
        "quota": absent.quota or None,
    }


def what_if(
    pod: Pod, copies: int, strategy: Strategy | None, seen: ClusterSnapshot
) -> tuple[WhatIfResult, SchedulingInputs]:
    """Simulate the placement of copies of a pod; without a strategy, by that of the requested pool."""
    view = convert_pod.view(pod)
    world = scheduling_inputs(seen, strategy or pool_strategy(seen, view.wants))
    return simulation.simulate(view, convert_affinity.pod_needs(pod), world, copies), world


def what_if_data(view: PodView, played: WhatIfResult, world: SchedulingInputs, count: int) -> dict[str, Any]:
    stopped = played.stopped
    return {
        "pod": view.key,
        "asks": [str(want) for want in view.wants],
        "strategy": world.strategy,
        "copies": count,
        "placed": [
            {"node": place.node, "cards": ledger_data.parts(world.ledgers[place.node], place.grant)}
            for place in played.places
        ],
        "missing": count - len(played.places),
        "why": None if stopped is None else as_data(ExplainResult(stopped, played.after)),
    }


def unknown_placement_data(view: PodView, seen: ClusterSnapshot, count: int) -> dict[str, Any]:
    """As `what_if_data`, for users who may not read the ledgers: the amounts of the requested pools only."""
    return {
        "pod": view.key,
        "asks": [str(want) for want in view.wants],
        "strategy": None,
        "copies": count,
        "placed": [],
        "missing": None,
        "why": None,
        "notes": [amount.sentence for amount in pool_amounts(seen, view.wants)],
    }
