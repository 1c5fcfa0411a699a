"""Build the binaries of the lab from pinned upstream modules, once per machine.

Binaries are built one at a time and moved into the cache when complete, so an interrupted build continues
where it stopped. A lock prevents concurrent builds.
"""

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from croupier_lab import binaries, errors, golang, lock, pinned
from croupier_lab.build_progress import BuildProgress
from croupier_lab.golang import Go
from croupier_lab.pinned import Module
from croupier_lab.progress import ProgressReporter

DOWNLOADING = "go: downloading "


@dataclass(frozen=True, slots=True)
class BuildDirectory:
    """Folders in which the binaries of one module are built."""

    module: Module
    go: Go
    folder: Path
    logs: Path

    @property
    def source(self) -> Path:
        return self.folder / "source"


async def build(names: Iterable[str], cache: Path, show: ProgressReporter) -> None:
    """Build the binaries that are missing in the cache."""
    async with _locked(cache, show):
        missing = [name for name in names if not binaries.in_cache(name, cache).is_file()]
        if not missing:
            return
        show.step(f"Building {', '.join(missing)} from source, once (several minutes)")
        go = await golang.find(cache, show)
        try:
            for module in pinned.MODULES_IN_ORDER:
                if programs := [name for name in missing if pinned.MODULE_OF[name] is module]:
                    await _build_module(_build_directory(module, go, cache), programs, show)
        finally:
            show.settle()


async def fetch_stages(cache: Path, show: ProgressReporter) -> None:
    """Copy KWOK's stage files from its module into the cache."""
    async with _locked(cache, show):
        if binaries.stages(cache) is not None:
            return
        show.step("Fetching KWOK's stage files")
        shop = _build_directory(pinned.KUBERNETES, await golang.find(cache, show), cache)
        _copy_stages(await _download(shop, pinned.KWOK_MODULE), binaries.stage_folder(cache))


def _locked(cache: Path, show: ProgressReporter) -> AbstractAsyncContextManager[None]:
    waiting = "Another process is building the lab's binaries: waiting for it to finish"
    return lock.held(cache / "build.lock", on_wait=lambda: show.say(waiting))


def _build_directory(module: Module, go: Go, cache: Path) -> BuildDirectory:
    shop = BuildDirectory(module, go, pinned.folder(module, cache), cache / "logs")
    shop.logs.mkdir(parents=True, exist_ok=True)
    shop.source.mkdir(parents=True, exist_ok=True)
    for file in ("go.mod", "go.sum"):
        shutil.copy(module.folder / file, shop.source / file)
    return shop


async def _build_module(shop: BuildDirectory, programs: Sequence[str], show: ProgressReporter) -> None:
    needs = {program: await _packages(shop, program, show) for program in programs}
    account = BuildProgress(needs)
    for number, program in enumerate(programs, start=1):
        what = f"Building {program} ({number} of {len(programs)}), packages compiled"
        draft = await _compile(shop, program, account, partial(_report_progress, show, what, account))
        finished = shop.folder / "bin" / program
        finished.parent.mkdir(exist_ok=True)
        draft.replace(finished)
        account.finish(program)
        show.say(f"Built {program} ({number} of {len(programs)})")


async def _compile(
    shop: BuildDirectory, program: str, account: BuildProgress, tell: Callable[[], None]
) -> Path:
    draft = shop.folder / "drafts" / program
    draft.parent.mkdir(exist_ok=True)
    log = shop.logs / f"build-{program}.log"
    command = ["build", "-v", *shop.module.flags, "-o", str(draft), shop.module.programs[program]]
    tell()
    with log.open("wb") as output:
        async with golang.running(shop.go, command, shop.source) as child:
            async for line in golang.lines(child):
                output.write(line)
                if account.read(line.decode(errors="replace")):
                    tell()
            code = await child.wait()
    if code != 0:
        raise errors.with_log(f"Building {program} failed.", log)
    return draft


async def _packages(shop: BuildDirectory, program: str, show: ProgressReporter) -> frozenset[str]:
    """Packages of the program; downloads its modules the first time."""
    log = shop.logs / f"packages-{program}.log"
    total = (
        (shop.source / "go.mod").read_text().count("// indirect")
    )  # upper bound of the modules to download
    command = ["list", "-deps", "-f", "{{.ImportPath}}", shop.module.programs[program]]
    downloaded, packages = 0, set[str]()
    with log.open("wb") as output:
        async with golang.running(shop.go, command, shop.source) as child:
            async for line in golang.lines(child):
                output.write(line)
                text = line.decode(errors="replace").strip()
                if text.startswith(DOWNLOADING):
                    downloaded += 1
                    show.advance(f"Downloading modules for {program}", downloaded, max(total, downloaded))
                else:
                    packages.add(text)
            code = await child.wait()
    if code != 0:
        raise errors.with_log(f"The modules of {program} could not be downloaded.", log)
    return frozenset(packages)


async def _download(shop: BuildDirectory, module: str) -> Path:
    """Download an upstream module and return its folder."""
    log = shop.logs / "download.log"
    command = ["mod", "download", "-json", module]
    async with golang.running(shop.go, command, shop.source) as child:
        printed = b"".join([line async for line in golang.lines(child)])
        code = await child.wait()
    log.write_bytes(printed)
    if code != 0:
        raise errors.with_log(f"The module {module} could not be downloaded.", log)
    start, end = printed.index(b"{"), printed.rindex(b"}") + 1
    return Path(msgspec.json.decode(printed[start:end], type=dict[str, str])["Dir"])


def _copy_stages(module: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for stage in (*pinned.NODE_STAGES, *pinned.POD_STAGES):
        draft = folder / f".{Path(stage).name}"
        shutil.copyfile(module / stage, draft)
        draft.replace(folder / Path(stage).name)


def _report_progress(show: ProgressReporter, what: str, account: BuildProgress) -> None:
    show.advance(what, account.done, account.total)
