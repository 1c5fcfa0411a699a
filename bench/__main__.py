"""`python -m bench`: run the benchmarks in labs, print a table, and write JSON."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench import figures, world
from bench.figures import Figure
from bench.ground import Ground
from bench.registry import ALONE, BENCHES, IN_WORLD
from bench.world import FULL, QUICK, Sizes
from croupier.cli import terminal
from croupier.lab.binaries import Sources

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
    ground = Ground(Sources(named=wanted.bin), terminal.progress(), wanted.quick)
    results = await measured(ground, sizes, wanted.only or list(BENCHES))
    report = figures.report(results, quick=wanted.quick)
    figures.write(report, wanted.output)
    console.print(figures.table(report))
    console.print(f"Written to {wanted.output}")


async def measured(ground: Ground, sizes: Sizes, names: Sequence[str]) -> list[Figure]:
    """Run the benchmarks of the shared cluster first, then those with their own cluster."""
    results: list[Figure] = []
    if shared := [name for name in names if name in IN_WORLD]:
        async with world.raised(ground, sizes) as on:
            for name in shared:
                ground.show.step(announced(name))
                results += await IN_WORLD[name].run(on)
    for name in names:
        if name in ALONE:
            ground.show.step(announced(name))
            results += await ALONE[name].run(ground)
    return results


def announced(name: str) -> str:
    return f"Running benchmark {name} (about {BENCHES[name].minutes:g} min at full size)"


async def until_told_to_stop(wanted: argparse.Namespace) -> None:
    """Run the benchmarks; SIGTERM also stops the lab."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await run(wanted, Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_LOG))


if __name__ == "__main__":
    asyncio.run(until_told_to_stop(arguments()))
