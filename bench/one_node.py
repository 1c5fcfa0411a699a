"""Forty pods on one node, a fifth of a card each: the worst case for per-node locking."""

from functools import partial
from typing import Any

from bench import cluster, processes
from bench.env import BenchEnv
from bench.figures import OURS, Figure
from bench.place import STOCK
from croupier.api.mps.allocation import CARDS, MARK, RATIO
from croupier.capacity.manager import CapacityManagerKind
from croupier.core.pods.request_parser import PERCENT

NODE = "node-1"
CAPACITY_MANAGERS: tuple[CapacityManagerKind | None, ...] = (None, "InMemory", "CRD")
QUICK_CAPACITY_MANAGERS: tuple[CapacityManagerKind | None, ...] = (None, "CRD")
"""The quick run of `place` runs both."""


async def onto_one_node(on: BenchEnv) -> list[Figure]:
    """The stock scheduler has no shares, so its pods request nothing."""
    count = 5 if on.quick else 40
    books = QUICK_CAPACITY_MANAGERS if on.quick else CAPACITY_MANAGERS
    seconds = {}
    async with cluster.raised(on, 3) as field:
        for book in books:
            async with processes.running(field.lab, field.api, book=book, strategy="BinPack") as helpers:
                make = partial(pod, shared=book is not None)
                placed = await cluster.place(field, helpers, count, make)
                if {bound.spec.node_name for bound in placed.pods} != {NODE}:
                    raise RuntimeError(f"a pod with a nodeSelector for {NODE} was bound to another node")
                seconds[book] = placed.seconds
                await cluster.clear(field)
    return [
        Figure("one_node", f"{count} pods on one node, {book}", "s", {OURS: taken, STOCK: seconds[None]})
        for book, taken in seconds.items()
        if book is not None
    ]


def pod(number: int, *, shared: bool) -> dict[str, Any]:
    annotations = {CARDS: "1", RATIO: "20"} if shared else {}
    limits = {MARK: "1", PERCENT: "20"} if shared else {}
    return {
        "metadata": {"name": f"pod-{number}", "annotations": annotations},
        "spec": {
            "automountServiceAccountToken": False,
            "nodeSelector": {"kubernetes.io/hostname": NODE},
            "containers": [
                {"name": "main", "image": "registry.example/main:1", "resources": {"limits": limits}}
            ],
        },
    }
