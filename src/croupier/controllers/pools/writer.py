"""Writes the ConfigMap of a pool and the annotations of its cards.

The ConfigMap is written before everything else: the agents follow it, and it stores the change in progress,
so that a new leader can continue or roll back the change.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from croupier.api.core_v1 import ConfigMap
from croupier.api.gpu import GPUDevice, GPUPool, convert_pool, pool_config
from croupier.api.gpu.device import DRAIN
from croupier.api.kinds import CONFIG_MAPS, GPU_DEVICES, GPU_POOLS
from croupier.controllers.pools import pool_snapshot
from croupier.controllers.pools.pool_snapshot import PoolSnapshot
from croupier.controllers.shared import apply
from croupier.core.pools import sharing_change
from croupier.core.pools.assignment import ASSIGNMENT
from croupier.core.pools.sharing_change import MemberStep, PoolDecision
from croupier.kube.client import concurrency
from croupier.kube.client.api_client import Client, PatchType
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Raw, Resource

OnWrite = Callable[[Resource[Any], Any], None]
CardAnnotations = dict[str, str | None]


class PoolWriter:
    """`wrote` is called with every object that the API server returns."""

    def __init__(self, api: Client, namespace: str, wrote: OnWrite) -> None:
        self._api = api
        self._namespace = namespace
        self._wrote = wrote

    async def config(self, snapshot: PoolSnapshot, outcome: PoolDecision) -> None:
        data, now = _data(snapshot, outcome), snapshot.config
        labels = {pool_config.POOL_LABEL: snapshot.name}
        if now is not None and now.data == data and _is_owned(now, snapshot.pool):
            return
        meta = {
            "name": pool_config.name(snapshot.name),
            "namespace": self._namespace,
            "labels": labels,
            # Removes the ConfigMap even if the finalizer of the pool was removed by force.
            "ownerReferences": [apply.owner_reference(GPU_POOLS, snapshot.pool)],
        }
        written = await self._api.apply(CONFIG_MAPS, {"metadata": meta, "data": data}, force=True)
        self._wrote(CONFIG_MAPS, written)

    async def steps(self, snapshot: PoolSnapshot, steps: Iterable[MemberStep]) -> None:
        cards = {seen.id: seen.device for seen in snapshot.cards}
        await self._cards(
            (cards[step.card], _card_annotations(snapshot.pool, cards[step.card], step)) for step in steps
        )

    async def release(self, snapshot: PoolSnapshot) -> None:
        """Unassign the cards of a pool that is being deleted."""
        await self._cards(
            (seen.device, {**cleared_annotations(seen.device), ASSIGNMENT: None})
            for seen in snapshot.cards
            if seen.device.metadata.annotations.get(ASSIGNMENT) == snapshot.name
        )

    async def tidy(self, cards: Iterable[GPUDevice]) -> None:
        """Remove annotations of a pool change from cards without a pool."""
        await self._cards((device, cleared_annotations(device)) for device in cards)

    async def unconfirm(self, pool: GPUPool, annotation: str) -> None:
        """Remove this confirmation, but not a newer one."""
        path = f"/metadata/annotations/{annotation.replace('/', '~1')}"
        seen: Raw = {"op": "test", "path": path, "value": pool.metadata.annotations[annotation]}
        removal: Raw = {"op": "remove", "path": path}
        written = await self._api.patch(
            GPU_POOLS, pool.metadata.name, [seen, removal], patch_type=PatchType.JSON
        )
        self._wrote(GPU_POOLS, written)

    async def finalizers(self, pool: GPUPool, finalizers: Iterable[str]) -> None:
        meta = {"resourceVersion": pool.metadata.resource_version, "finalizers": list(finalizers)}
        written = await self._api.patch(GPU_POOLS, pool.metadata.name, {"metadata": meta})
        if written.metadata.finalizers:  # without finalizers the API server deletes the pool
            self._wrote(GPU_POOLS, written)

    async def drop_config(self, config: ConfigMap) -> None:
        try:
            await self._api.delete(CONFIG_MAPS, config.metadata.name, namespace=config.metadata.namespace)
        except NotFound:
            return

    async def _cards(self, wanted: Iterable[tuple[GPUDevice, CardAnnotations]]) -> None:
        """Write only to the versions that were read: a user may have changed an annotation since."""

        async def write(device: GPUDevice, annotations: CardAnnotations) -> None:
            meta: Raw = {"resourceVersion": device.metadata.resource_version, "annotations": annotations}
            try:
                written = await self._api.patch(GPU_DEVICES, device.metadata.name, {"metadata": meta})
            except NotFound:
                return
            self._wrote(GPU_DEVICES, written)

        await concurrency.gather_limited(
            write(device, annotations) for device, annotations in wanted if _changes(device, annotations)
        )


def _data(snapshot: PoolSnapshot, outcome: PoolDecision) -> dict[str, str]:
    like = snapshot.pool.spec.allocation
    data = {
        pool_config.IDS_KEY: msgspec.json.encode(sorted(seen.id for seen in snapshot.cards)).decode(),
        pool_config.ALLOCATION_KEY: convert_pool.encode_allocation(
            convert_pool.allocation_for(outcome.sharing, like)
        ),
    }
    if outcome.change is not None:
        data[pool_snapshot.CHANGE] = pool_snapshot.encode_change(outcome.change, like)
    return data


def _is_owned(config: ConfigMap, pool: GPUPool) -> bool:
    owners = {owner.uid for owner in config.metadata.owner_references}
    return (
        config.metadata.labels.get(pool_config.POOL_LABEL) == pool.metadata.name
        and pool.metadata.uid in owners
    )


def _card_annotations(pool: GPUPool, device: GPUDevice, step: MemberStep) -> CardAnnotations:
    own = step.sharing
    like = pool.spec.allocation
    annotations: CardAnnotations = {
        convert_pool.CARD_ALLOCATION: convert_pool.encode_allocation(convert_pool.allocation_for(own, like))
        if own is not None
        else None
    }
    drained, ours = device.metadata.annotations.get(DRAIN), sharing_change.drain_reason(pool.metadata.name)
    if drained in (None, ours):  # the drain of a user stays
        annotations[DRAIN] = ours if step.drained else None
    return annotations


def cleared_annotations(device: GPUDevice) -> CardAnnotations:
    """Remove the annotations of a pool change from a card."""
    annotations: CardAnnotations = {convert_pool.CARD_ALLOCATION: None}
    if sharing_change.is_drain_reason(device.metadata.annotations.get(DRAIN, "")):
        annotations[DRAIN] = None
    return annotations


def _changes(device: GPUDevice, annotations: CardAnnotations) -> bool:
    return any(device.metadata.annotations.get(name) != word for name, word in annotations.items())
