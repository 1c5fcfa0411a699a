"""Search for the binaries of the lab.

The order is fixed: --bin, KUBEBUILDER_ASSETS, PATH, the cache. A binary is used only if its version fits;
rejected binaries are kept with the reason.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from croupier_lab import pinned, user_dirs, versions

VERSION_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True)
class FoundBinary:
    """A binary that will be used."""

    name: str
    path: Path
    source: str


@dataclass(frozen=True, slots=True)
class RejectedBinary:
    """A binary that exists but does not fit."""

    name: str
    path: Path
    source: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} at {self.path} ({self.source}) was rejected: {self.reason}"


@dataclass(frozen=True, slots=True)
class BinarySearch:
    """Result of a search."""

    found: Mapping[str, FoundBinary]
    rejected: tuple[RejectedBinary, ...]
    missing: tuple[str, ...]

    @property
    def paths(self) -> dict[str, Path]:
        return {name: found.path for name, found in self.found.items()}


@dataclass(frozen=True, slots=True)
class BinarySources:
    """Folders to search, in order."""

    named: Path | None = None
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def cache(self) -> Path:
        return user_dirs.cache(self.env)

    def folders(self) -> Iterator[tuple[str, Path]]:
        if self.named is not None:
            yield "--bin", self.named
        if assets := self.env.get("KUBEBUILDER_ASSETS"):
            yield "KUBEBUILDER_ASSETS", Path(assets)
        for folder in dict.fromkeys(self.env.get("PATH", "").split(os.pathsep)):
            if folder:
                yield "PATH", Path(folder)


def search(names: Iterable[str], sources: BinarySources) -> BinarySearch:
    """Search every name; each candidate outside the cache is run once to get its version."""
    wanted = tuple(names)
    with ThreadPoolExecutor(max_workers=4) as pool:
        results = list(pool.map(lambda name: _find(name, sources), wanted))
    found = {name: hit for name, (hit, _) in zip(wanted, results, strict=True) if hit is not None}
    return BinarySearch(
        found=found,
        rejected=tuple(rejected for _, several in results for rejected in several),
        missing=tuple(name for name in wanted if name not in found),
    )


def in_cache(name: str, cache: Path) -> Path:
    """Path of this binary in the cache, whether it exists or not."""
    return pinned.folder(pinned.MODULE_OF[name], cache) / "bin" / name


def stage_folder(cache: Path) -> Path:
    """Folder of KWOK's stage files in the cache."""
    return pinned.folder(pinned.KUBERNETES, cache) / "stages"


def stages(cache: Path, *, pods: bool = True) -> tuple[Path, ...] | None:
    """KWOK's stage files in the cache; None if one is missing."""
    return stages_in(stage_folder(cache), pods=pods)


def stages_in(folder: Path, *, pods: bool = True) -> tuple[Path, ...] | None:
    """KWOK's stage files in `folder`; None if one is missing. `pods` adds the stages of pods."""
    wanted = pinned.NODE_STAGES + (pinned.POD_STAGES if pods else ())
    files = tuple(folder / Path(stage).name for stage in wanted)
    return files if all(file.is_file() for file in files) else None


def ask_version(name: str, path: Path) -> versions.BinaryVersion | None:
    """The version that the binary prints; None if it cannot be run or the output has no version."""
    try:
        answer = subprocess.run(
            [path, *versions.RULES[name].question],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=VERSION_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return versions.read(answer.stdout + answer.stderr)


def _find(name: str, sources: BinarySources) -> tuple[FoundBinary | None, list[RejectedBinary]]:
    rejected: list[RejectedBinary] = []
    seen: set[Path] = set()
    for source, folder in sources.folders():
        path = folder.absolute() / name
        if not (path.is_file() and os.access(path, os.X_OK)) or path.resolve() in seen:
            continue
        seen.add(path.resolve())
        reason = versions.objection(name, ask_version(name, path))
        if reason is None:
            return FoundBinary(name, path, source), rejected
        rejected.append(RejectedBinary(name, path, source, reason))
    cached = in_cache(name, sources.cache)
    return (FoundBinary(name, cached, "cache") if cached.is_file() else None), rejected
