"""`python -m bench`: run the benchmarks in labs, print a table, and write JSON."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench import figures, filled_cluster
from bench.env import BenchEnv
from bench.figures import Figure
from bench.filled_cluster import FULL, QUICK, ClusterSizes
from bench.registry import BENCHES, OWN_CLUSTER_BENCHES, SHARED_CLUSTER_BENCHES
from croupier_lab import progress
from croupier_lab.binaries import BinarySources

WIDTH_OF_A_LOG = 130
LATEST = Path(__file__).parent / "results" / "latest.json"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Run the benchmarks of Croupier in temporary labs."
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a smoke test, not a measurement")
    parser.add_argument(
        "--only", choices=sorted(BENCHES), action="append", help="run only this benchmark (repeatable)"
    )
    parser.add_argument("--nodes", type=int, help=f"number of nodes (default {FULL.nodes:,})")
    parser.add_argument("--pods", type=int, help=f"number of pods (default {FULL.pods:,})")
    parser.add_argument(
        "--output", type=Path, default=LATEST, help=f"path of the JSON file (default {LATEST.name})"
    )
    parser.add_argument("--bin", type=Path, help="folder with kube-apiserver and etcd")
    return parser.parse_args()


async def run(wanted: argparse.Namespace, console: Console) -> None:
    sizes = QUICK if wanted.quick else FULL
    sizes = replace(sizes, nodes=wanted.nodes or sizes.nodes, pods=wanted.pods or sizes.pods)
    ground = BenchEnv(BinarySources(named=wanted.bin), progress.to_stderr(), wanted.quick)
    results = await measured(ground, sizes, wanted.only or list(BENCHES))
    report = figures.report(results, quick=wanted.quick)
    figures.write(report, wanted.output)
    console.print(figures.table(report))
    console.print(f"Written to {wanted.output}")


async def measured(ground: BenchEnv, sizes: ClusterSizes, names: Sequence[str]) -> list[Figure]:
    """Run the benchmarks of the shared cluster first, then those with their own cluster."""
    results: list[Figure] = []
    if shared := [name for name in names if name in SHARED_CLUSTER_BENCHES]:
        async with filled_cluster.raised(ground, sizes) as on:
            for name in shared:
                ground.show.step(announced(name))
                results += await SHARED_CLUSTER_BENCHES[name].run(on)
    for name in names:
        if name in OWN_CLUSTER_BENCHES:
            ground.show.step(announced(name))
            results += await OWN_CLUSTER_BENCHES[name].run(ground)
    return results


def announced(name: str) -> str:
    return f"Running benchmark {name} (about {BENCHES[name].minutes:g} min at full size)"


async def main(wanted: argparse.Namespace) -> None:
    """Run the benchmarks; SIGTERM also stops the lab."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await run(wanted, Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_LOG))


if __name__ == "__main__":
    asyncio.run(main(arguments()))
