"""What a pool leaves in the API server beside its status: its ConfigMap, and words on its cards.

The ConfigMap comes first of all writes: it is what the agents follow, and it remembers the change under way,
so that whoever takes over after a crash knows what was before.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from croupier.api.core_v1 import ConfigMap
from croupier.api.gpu import GPUDevice, GPUPool, pooling
from croupier.api.gpu.device import ASSIGNMENT, DRAIN
from croupier.api.kinds import CONFIG_MAPS, GPU_DEVICES, GPU_POOLS
from croupier.controllers.pools import look as pool_look
from croupier.controllers.pools.look import Look
from croupier.core.pools.change import Outcome, Step
from croupier.kube import together
from croupier.kube.client import Client, PatchType
from croupier.kube.errors import NotFound
from croupier.kube.resource import Raw, Resource

LABEL: Final = "gpu.deckhouse.io/pool"
CARDS: Final = "inventoryIDs"
ALLOCATION: Final = "allocation"
_DRAINED: Final = pool_look.drain("").partition("pool ")[2]

Wrote = Callable[[Resource[Any], Any], None]
Words = dict[str, str | None]


def config_name(pool: str) -> str:
    return f"gpupool-{pool}"


class PoolWriter:
    """`wrote` is told every answer of the API server."""

    def __init__(self, api: Client, namespace: str, wrote: Wrote) -> None:
        self._api = api
        self._namespace = namespace
        self._wrote = wrote

    async def config(self, look: Look, outcome: Outcome) -> None:
        data, now = _data(look, outcome), look.config
        labels = {LABEL: look.name}
        if now is not None and now.data == data and _is_owned(now, look.pool):
            return
        meta = {
            "name": config_name(look.name),
            "namespace": self._namespace,
            "labels": labels,
            "ownerReferences": [_owner(look.pool)],
        }
        written = await self._api.apply(CONFIG_MAPS, {"metadata": meta, "data": data}, force=True)
        self._wrote(CONFIG_MAPS, written)

    async def steps(self, look: Look, steps: Iterable[Step]) -> None:
        cards = {seen.id: seen.device for seen in look.cards}
        await self._cards((cards[step.card], _words(look.pool, cards[step.card], step)) for step in steps)

    async def release(self, look: Look) -> None:
        """Take its cards from a pool that goes."""
        await self._cards(
            (seen.device, {**left(seen.device), ASSIGNMENT: None})
            for seen in look.cards
            if seen.device.metadata.annotations.get(ASSIGNMENT) == look.name
        )

    async def tidy(self, cards: Iterable[GPUDevice]) -> None:
        """Take what a change of their pool left on cards that are in none."""
        await self._cards((device, left(device)) for device in cards)

    async def unconfirm(self, pool: GPUPool, annotation: str) -> None:
        """A confirmation counts once; one that came since is another."""
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
        if written.metadata.finalizers:  # with the last one the pool is gone
            self._wrote(GPU_POOLS, written)

    async def drop_config(self, config: ConfigMap) -> None:
        try:
            await self._api.delete(CONFIG_MAPS, config.metadata.name, namespace=config.metadata.namespace)
        except NotFound:
            return

    async def _cards(self, wanted: Iterable[tuple[GPUDevice, Words]]) -> None:
        """Every card is written for the version that was seen: a person may have said something since."""

        async def one(device: GPUDevice, words: Words) -> None:
            meta: Raw = {"resourceVersion": device.metadata.resource_version, "annotations": words}
            try:
                written = await self._api.patch(GPU_DEVICES, device.metadata.name, {"metadata": meta})
            except NotFound:
                return
            self._wrote(GPU_DEVICES, written)

        await together.all_of(one(device, words) for device, words in wanted if _changes(device, words))


def _data(look: Look, outcome: Outcome) -> dict[str, str]:
    like = look.pool.spec.allocation
    data = {
        CARDS: msgspec.json.encode(sorted(seen.id for seen in look.cards)).decode(),
        ALLOCATION: pooling.text(pooling.allocated(outcome.sharing, like)),
    }
    if outcome.change is not None:
        data[pool_look.CHANGE] = pool_look.remembered(outcome.change, like)
    return data


def _is_owned(config: ConfigMap, pool: GPUPool) -> bool:
    owners = {one.uid for one in config.metadata.owner_references}
    return config.metadata.labels.get(LABEL) == pool.metadata.name and pool.metadata.uid in owners


def _owner(pool: GPUPool) -> Raw:
    """So that nothing stays of a pool whose finalizer somebody took away by force."""
    return {
        "apiVersion": GPU_POOLS.api_version,
        "kind": GPU_POOLS.kind,
        "name": pool.metadata.name,
        "uid": pool.metadata.uid,
    }


def _words(pool: GPUPool, device: GPUDevice, step: Step) -> Words:
    own = step.sharing
    like = pool.spec.allocation
    words: Words = {
        pooling.CARD_ALLOCATION: pooling.text(pooling.allocated(own, like)) if own is not None else None
    }
    drained, ours = device.metadata.annotations.get(DRAIN), pool_look.drain(pool.metadata.name)
    if drained in (None, ours):  # a person's stays
        words[DRAIN] = ours if step.drained else None
    return words


def left(device: GPUDevice) -> Words:
    """What a change of its pool may have left on a card, taken away."""
    words: Words = {pooling.CARD_ALLOCATION: None}
    if is_ours(device.metadata.annotations.get(DRAIN, "")):
        words[DRAIN] = None
    return words


def is_ours(drain: str) -> bool:
    return drain.startswith("pool ") and drain.endswith(_DRAINED)


def _changes(device: GPUDevice, words: Words) -> bool:
    return any(device.metadata.annotations.get(name) != word for name, word in words.items())
