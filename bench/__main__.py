"""`python -m bench`: raises labs, measures, prints one table, writes JSON."""

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
        prog="python -m bench", description="Measure Croupier on labs of its own."
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it runs, not how fast")
    parser.add_argument(
        "--only", choices=sorted(BENCHES), action="append", help="run just this bench (repeatable)"
    )
    parser.add_argument("--nodes", type=int, help=f"how many (default {FULL.nodes:,})")
    parser.add_argument("--pods", type=int, help=f"how many (default {FULL.pods:,})")
    parser.add_argument(
        "--output", type=Path, default=LATEST, help=f"where the JSON goes (default {LATEST.name})"
    )
    parser.add_argument("--bin", type=Path, help="folder with kube-apiserver and etcd")
    return parser.parse_args()


async def run(wanted: argparse.Namespace, console: Console) -> None:
    sizes = QUICK if wanted.quick else FULL
    sizes = replace(sizes, nodes=wanted.nodes or sizes.nodes, pods=wanted.pods or sizes.pods)
    ground = Ground(Sources(named=wanted.bin), terminal.progress(), wanted.quick)
    found = await measured(ground, sizes, wanted.only or list(BENCHES))
    made = figures.report(found, quick=wanted.quick)
    figures.write(made, wanted.output)
    console.print(figures.table(made))
    console.print(f"Written to {wanted.output}")


async def measured(ground: Ground, sizes: Sizes, names: Sequence[str]) -> list[Figure]:
    """The benches that share one full cluster first; it is gone before the others raise their own."""
    found: list[Figure] = []
    if shared := [name for name in names if name in IN_WORLD]:
        async with world.raised(ground, sizes) as on:
            for name in shared:
                ground.show.step(announced(name))
                found += await IN_WORLD[name].run(on)
    for name in names:
        if name in ALONE:
            ground.show.step(announced(name))
            found += await ALONE[name].run(ground)
    return found


def announced(name: str) -> str:
    return f"Measuring {name} (at full size about {BENCHES[name].minutes:g} min)"


async def until_told_to_stop(wanted: argparse.Namespace) -> None:
    """A polite `kill` ends the lab too."""
    this = asyncio.current_task()
    if this is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    await run(wanted, Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_LOG))


if __name__ == "__main__":
    asyncio.run(until_told_to_stop(arguments()))
