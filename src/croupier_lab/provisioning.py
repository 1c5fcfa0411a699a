"""Provide the binaries and stage files of a lab; missing ones are built."""

import asyncio
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from croupier_lab import binaries, build, lock, pinned
from croupier_lab.binaries import BinarySources
from croupier_lab.controlplane import KWOK
from croupier_lab.errors import LabError
from croupier_lab.progress import ProgressReporter


@dataclass(frozen=True, slots=True)
class ProvisionedBinaries:
    binaries: dict[str, Path] = field(default_factory=dict)
    stages: tuple[Path, ...] = ()


async def ensure(
    names: Iterable[str], sources: BinarySources, show: ProgressReporter, *, pods_run: bool = True
) -> ProvisionedBinaries:
    """Find these binaries and build the missing ones. Includes the stage files for KWOK."""
    wanted = tuple(names)
    search = binaries.search(wanted, sources)
    if search.missing:
        for rejected in search.rejected:
            if rejected.name in search.missing:
                show.say(str(rejected))
        await build.build(search.missing, sources.cache, show)
        built = {name: binaries.in_cache(name, sources.cache) for name in search.missing}
    else:
        built = {}
    paths = {**search.paths, **built}
    if KWOK not in wanted:
        return ProvisionedBinaries(paths)
    return ProvisionedBinaries(paths, await _stages(paths[KWOK], sources.cache, show, pods_run=pods_run))


async def _stages(kwok: Path, cache: Path, show: ProgressReporter, *, pods_run: bool) -> tuple[Path, ...]:
    """KWOK's stage files: from the folder `stages` next to its binary, the cache, or its module."""
    adjacent = kwok.parent / "stages"
    if stages := binaries.stages_in(adjacent, pods=pods_run) or binaries.stages(cache, pods=pods_run):
        return stages
    try:
        await build.fetch_stages(cache, show)
    except LabError as failure:
        files = ", ".join(Path(stage).name for stage in (*pinned.NODE_STAGES, *pinned.POD_STAGES))
        advice = f"Put KWOK's stage files ({files}) into {adjacent}, or try again with network access."
        raise LabError(f"{advice} They could not be fetched: {failure}") from failure
    stages = binaries.stages(cache, pods=pods_run)
    if stages is None:
        raise LabError(f"KWOK's stage files are not in {binaries.stage_folder(cache)} after fetching them.")
    return stages


async def clear(cache: Path, show: ProgressReporter) -> None:
    """Delete everything that was built. Waits for a running build."""
    waiting = "Another process is building the lab's binaries: waiting for it to finish"
    async with lock.held(cache / "build.lock", on_wait=lambda: show.say(waiting)):
        await asyncio.to_thread(_remove_folders, cache)


def _remove_folders(cache: Path) -> None:
    for folder in filter(Path.is_dir, cache.iterdir()):
        for inner, _, _ in os.walk(folder):
            os.chmod(inner, 0o700)  # module folders of Go are read-only
        shutil.rmtree(folder)
