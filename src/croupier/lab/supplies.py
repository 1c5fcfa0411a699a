"""Everything a lab needs before it can start: programs found, or built where they are missing."""

import asyncio
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from croupier.lab import binaries, build, lock, pinned
from croupier.lab.binaries import Sources
from croupier.lab.controlplane import KWOK
from croupier.lab.errors import LabError
from croupier.lab.progress import Progress


@dataclass(frozen=True, slots=True)
class Supplies:
    binaries: dict[str, Path] = field(default_factory=dict)
    stages: tuple[Path, ...] = ()


async def ensure(
    names: Iterable[str], sources: Sources, show: Progress, *, pods_run: bool = True
) -> Supplies:
    """Find these programs, building what is nowhere to be found. KWOK comes with its stage files."""
    wanted = tuple(names)
    search = binaries.search(wanted, sources)
    if search.missing:
        for passed in search.passed_over:
            if passed.name in search.missing:
                show.say(str(passed))
        await build.build(search.missing, sources.cache, show)
        built = {name: binaries.in_cache(name, sources.cache) for name in search.missing}
    else:
        built = {}
    paths = {**search.paths, **built}
    if KWOK not in wanted:
        return Supplies(paths)
    return Supplies(paths, await _stages(paths[KWOK], sources.cache, show, pods_run=pods_run))


async def _stages(kwok: Path, cache: Path, show: Progress, *, pods_run: bool) -> tuple[Path, ...]:
    """From a folder `stages` beside the program, our cache, or the module itself."""
    beside = kwok.parent / "stages"
    if stages := binaries.stages_in(beside, pods=pods_run) or binaries.stages(cache, pods=pods_run):
        return stages
    try:
        await build.fetch_stages(cache, show)
    except LabError as failure:
        files = ", ".join(Path(stage).name for stage in (*pinned.NODE_STAGES, *pinned.POD_STAGES))
        advice = f"Put KWOK's stage files ({files}) into {beside}, or try again with network access."
        raise LabError(f"{advice} They could not be fetched: {failure}") from failure
    stages = binaries.stages(cache, pods=pods_run)
    if stages is None:
        raise LabError(f"KWOK's stage files are not in {binaries.stage_folder(cache)} after fetching them.")
    return stages


async def clear(cache: Path, show: Progress) -> None:
    """Delete everything we built. Waits for a build that runs now."""
    waiting = "Another croupier is building the lab's programs: waiting for it to finish"
    async with lock.held(cache / "build.lock", on_wait=lambda: show.say(waiting)):
        await asyncio.to_thread(_remove_folders, cache)


def _remove_folders(cache: Path) -> None:
    for folder in filter(Path.is_dir, cache.iterdir()):
        for inner, _, _ in os.walk(folder):
            os.chmod(inner, 0o700)  # Go makes its module folders read-only
        shutil.rmtree(folder)
