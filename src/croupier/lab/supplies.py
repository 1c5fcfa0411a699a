"""Everything a lab needs before it can start: programs found, or built where they are missing."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from croupier.lab import binaries
from croupier.lab.binaries import Sources
from croupier.lab.controlplane import KWOK
from croupier.lab.errors import LabError
from croupier.lab.progress import Progress


@dataclass(frozen=True, slots=True)
class Supplies:
    binaries: dict[str, Path]
    stages: tuple[Path, ...] = ()


async def ensure(
    names: Iterable[str], sources: Sources, show: Progress, *, pods_run: bool = True
) -> Supplies:
    """Find these programs, building what is nowhere to be found."""
    wanted = tuple(names)
    search = binaries.search(wanted, sources)
    if search.missing:
        raise LabError(f"missing: {search.missing}")
    stages = binaries.stages(sources.cache, pods=pods_run) if KWOK in wanted else ()
    if stages is None:
        raise LabError("no stages")
    return Supplies(search.paths, stages)
