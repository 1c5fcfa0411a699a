"""Cost of a reconcile, from the change in the store to its end."""

from bench import subject_process
from bench.figures import OURS, Figure
from bench.filled_cluster import FilledCluster

PLAIN = "plain patches"
"""The same writes without a controller: the limit of the API server."""


async def loop(on: FilledCluster) -> list[Figure]:
    """Measure no-op reconciles first, then reconciles with one write each."""
    changes = on.sizes.pods
    async with subject_process.started("reconciling", on.kubeconfig, changes, on.sizes.events) as running:
        idle, writing, plain = [await running.hear() for _ in range(3)]
    return [
        Figure("reconcile", "no-op reconciles a second", "/s", {OURS: idle["reconciles"] / idle["wall"]}),
        Figure(
            "reconcile",
            "CPU an event, store to end of no-op reconcile",
            "µs",
            {OURS: idle["cpu"] / idle["reconciles"] * 1e6},
        ),
        Figure(
            "reconcile",
            "reconciles a second with one status write each",
            "/s",
            {OURS: writing["written"] / writing["wall"], PLAIN: plain["written"] / plain["wall"]},
        ),
        Figure(
            "reconcile",
            "CPU a reconcile with one status write, its echo included",
            "µs",
            {
                OURS: writing["cpu"] / writing["written"] * 1e6,
                PLAIN: plain["cpu"] / plain["written"] * 1e6,
            },
        ),
        Figure(
            "reconcile",
            "reconciles per status write (1 is optimal)",
            "",
            {OURS: (writing["reconciles"] - writing["written"]) / writing["written"]},
        ),
    ]
