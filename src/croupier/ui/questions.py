"""Answers about one object, from memory, in the JSON of the commands.

Each answer is computed from the snapshot as the viewer may see it, so that it cannot tell more than the rows.
"""

from typing import Any

from croupier.api import convert_affinity, convert_pod, meta
from croupier.capacity import card_data, market_data, pod_explanation, pool_data, rejected_pod
from croupier.capacity.card_data import CardRow
from croupier.capacity.pod_explanation import ExplainResult
from croupier.capacity.rejected_pod import RejectedPod
from croupier.core.explanation import explain
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import Forbidden
from croupier.ui import redaction, rows
from croupier.ui.rights import Rights
from croupier.ui.world import World


class NoSuchObject(Exception):
    """There is no such object, or the viewer may not see it; the text is the sentence. Becomes 404."""


def card(world: World, name: str, rights: Rights) -> dict[str, Any]:
    seen = redaction.snapshot(world.snapshot(), rights)
    device = next((device for device in seen.devices if device.metadata.name == name), None)
    if device is None:
        raise NoSuchObject(f"there is no card {name} that you may see; it may have left the cluster")
    node = device.status.node_name or ""
    ledger = seen.ledgers.get(node)
    decided = world.offers.decide(node).get(device.card_id)
    return {
        **card_data.as_data(CardRow(device, ledger.card(name) if ledger is not None else None)),
        "pending": [
            {"pool": entry.pool, "reason": entry.reason, "sentence": entry.sentence, "hint": entry.hint}
            for entry in (decided.pending if decided is not None else ())
            if not entry.pool or rights.sees_pool(entry.pool)
        ],
    }


def pool(world: World, name: str, rights: Rights) -> dict[str, Any]:
    seen = redaction.snapshot(world.snapshot(), rights)
    found = next((pool for pool in seen.pools if pool.metadata.name == name), None)
    if found is None:
        raise NoSuchObject(f"there is no pool {name} that you may see")
    return pool_data.as_data(found)


async def pod(world: World, key: tuple[str, str], rights: Rights, api: Client) -> dict[str, Any]:
    """Why a pod waits, or what it holds; for a pod that was rejected, why."""
    namespace, name = key
    if not rights.sees_namespace(namespace):
        raise NoSuchObject(f"there is no pod {namespace}/{name} that you may see")
    source = world.pod(namespace, name)
    if source is None:
        if absent := await _rejected(api, namespace, name):
            return pod_explanation.as_data(absent)
        raise NoSuchObject(f"there is no pod {namespace}/{name}; it may have ended")
    seen, view = redaction.snapshot(world.snapshot(), rights), convert_pod.view(source)
    inputs = pod_explanation.scheduling_inputs(seen, pod_explanation.pool_strategy(seen, view.wants))
    found = explain.explain(view, convert_affinity.pod_needs(source), inputs)
    scheduled = meta.condition(source.status.conditions, "PodScheduled")
    bound = scheduled is not None and scheduled.status == "True"
    since = scheduled.last_transition_time if scheduled is not None and bound else None
    return pod_explanation.as_data(
        ExplainResult(found, inputs, scheduler=rows.scheduler_message(source), since=since)
    )


async def _rejected(api: Client, namespace: str, name: str) -> RejectedPod | None:
    """None also if the viewer may not list Events, as all viewers of mode headers."""
    try:
        return await rejected_pod.find(api, namespace, name)
    except Forbidden:
        return None


def market(world: World, node: str, rights: Rights) -> dict[str, Any]:
    lease = world.market.lease(node) if rights.all_cards else None
    if lease is None:
        raise NoSuchObject(f"no market agent that you may see has run on node {node}")
    data = market_data.as_data(lease, world.clock.now())
    visible = [line for line in data.get("pods", ()) if rights.sees_namespace(line["pod"].partition("/")[0])]
    return {**data, "pods": visible, "series": world.market.series.of(node)}
