"""The image of Croupier itself, built without Docker: a Debian root file system, our packages, our code.

The same lists make the image that image/Dockerfile builds: image/packages, image/requirements.lock and
the package in this checkout. What follows from the first two is slow to make and is kept in the cache; only
our own code is installed anew each time.
"""

import asyncio
import hashlib
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from croupier.lab import image
from croupier.lab.command import output
from croupier.lab.errors import LabError
from croupier.lab.image import Packed, Running
from croupier.lab.progress import Progress

CHECKOUT: Final = Path(__file__).resolve().parents[3]
SUITE: Final = "bookworm"
PYTHON: Final = "3.11"
"""The one of that suite: the wheels must fit it, whatever Python builds the image."""
TAG: Final = "croupier.lab/croupier"
PLACE: Final = "/opt/croupier"
"""Where Python finds us, in the image."""
RUNNING: Final = Running(
    ("/usr/bin/croupier",),
    user="65532:65532",
    environment=("PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"),
)
UNNEEDED: Final = ("usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists")


def obstacle() -> str | None:
    """Why no image can be built here, with what to do; None if it can."""
    if not (CHECKOUT / "image" / "packages").exists():
        return "The image is built from a checkout of the source, and this is an installed package."
    if os.geteuid() != 0:
        return "A root file system is made with debootstrap, which needs root: run the same command as root."
    if _debootstrap() is None:
        return "The image needs debootstrap: run `make setup` as root, or `apt-get install debootstrap`."
    return None


async def build(archive: Path, cache: Path, show: Progress, *, tag: str) -> Packed:
    """Write the image to `archive`."""
    if reason := obstacle():
        raise LabError(reason)
    base = await _furnished(await _base(cache, show), show)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        root = Path(folder, "root")
        await output("cp", "--archive", "--reflink=auto", str(base), str(root))
        show.step("Installing Croupier into the image")
        await _install(root)
        show.step(f"Packing {tag}")
        return await asyncio.to_thread(image.pack, root, archive, tag=tag, running=RUNNING)


@dataclass(frozen=True, slots=True)
class Kept:
    """An archive in the cache. Its name tells the content, so that another content is another image."""

    archive: Path
    repository: str
    tag: str


async def kept(cache: Path, show: Progress) -> Kept:
    """The image of this checkout, built anew only when something changed of what it is made of."""
    if reason := obstacle():
        raise LabError(reason)
    named = await asyncio.to_thread(_content)
    repository, version = f"{TAG}/{named}", metadata.version("croupier")
    found = Kept(cache / "own-image" / f"{named}.tar", repository, f"{repository}:{version}")
    if not found.archive.exists():
        found.archive.parent.mkdir(parents=True, exist_ok=True)
        before = list(found.archive.parent.glob("*.tar"))
        unfinished = found.archive.with_suffix(f".{os.getpid()}")
        await build(unfinished, cache, show, tag=found.tag)
        unfinished.rename(found.archive)
        for one in before:
            one.unlink(missing_ok=True)
    return found


def _content() -> str:
    content = hashlib.sha256(metadata.version("croupier").encode())
    made_of = [*(CHECKOUT / "src" / "croupier").rglob("*"), *(CHECKOUT / "image").iterdir()]
    for path in sorted(one for one in made_of if one.is_file() and one.suffix != ".pyc"):
        content.update(str(path.relative_to(CHECKOUT)).encode() + path.read_bytes())
    return content.hexdigest()[:12]


def _debootstrap() -> str | None:
    return shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


async def _base(cache: Path, show: Progress) -> Path:
    """Debian with the packages of the list, made once."""
    packages = (CHECKOUT / "image" / "packages").read_text().split()
    named = hashlib.sha256(f"{SUITE} {sorted(packages)}".encode()).hexdigest()[:16]
    done = cache / "image" / named
    if done.exists():
        return done
    show.step(f"Making a Debian root file system ({SUITE}: {', '.join(packages)}); a minute or two, once")
    unfinished = done.with_name(f"{named}.part")
    await asyncio.to_thread(shutil.rmtree, unfinished, ignore_errors=True)
    done.parent.mkdir(parents=True, exist_ok=True)
    options = ("--variant=minbase", f"--include={','.join(packages)}")
    await output(_debootstrap() or "debootstrap", *options, SUITE, str(unfinished))
    for folder in UNNEEDED:
        await asyncio.to_thread(shutil.rmtree, unfinished / folder, ignore_errors=True)
    unfinished.rename(done)
    return done


async def _furnished(base: Path, show: Progress) -> Path:
    """The same with the Python packages of the lock, made once."""
    lock = CHECKOUT / "image" / "requirements.lock"
    named = hashlib.sha256(f"{base.name} {PYTHON} compiled".encode() + lock.read_bytes()).hexdigest()[:16]
    done = base.with_name(named)
    if done.exists():
        return done
    show.step("Installing Python packages into the root file system, once")
    fitting = ("--only-binary=:all:", f"--python-version={PYTHON}", "--implementation=cp")
    with tempfile.TemporaryDirectory(dir=base.parent) as folder:
        unfinished = Path(folder, "root")
        await output("cp", "--archive", "--reflink=auto", str(base), str(unfinished))
        await output(*_pip(unfinished), *fitting, "--require-hashes", "-r", str(lock))
        await _compile(unfinished, PLACE)
        if not done.exists():  # somebody else may have been faster
            await asyncio.to_thread(unfinished.rename, done)
    return done


async def _install(root: Path) -> None:
    await output(*_pip(root), "--no-deps", "--no-build-isolation", str(CHECKOUT))
    await _compile(root, f"{PLACE}/croupier")
    shutil.copy(CHECKOUT / "image" / "croupier", root / "usr" / "bin" / "croupier")


async def _compile(root: Path, folder: str) -> None:
    """By the image's own Python: a process that must compile first starts three times as slowly.

    What was compiled is not compared with its source, whose time an image does not keep.
    """
    compiling = ("python3", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
    await output("chroot", str(root), *compiling, folder)


def _pip(root: Path) -> tuple[str, ...]:
    target = root / PLACE.lstrip("/")
    return (sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(target))
