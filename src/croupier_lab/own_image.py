"""Build the Croupier image without Docker: a Debian root file system, Python packages, and this checkout.

Uses the same inputs as image/Dockerfile: image/packages, image/requirements.lock and the package in this
checkout. The first two layers are cached; only Croupier itself is installed on every build.
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

from croupier_lab import image
from croupier_lab.command import output
from croupier_lab.errors import LabError
from croupier_lab.image import ImageConfig, Packed
from croupier_lab.progress import ProgressReporter

CHECKOUT: Final = Path(__file__).resolve().parents[2]
SUITE: Final = "bookworm"
PYTHON: Final = "3.11"
"""The Python version of that suite, which the wheels must match."""
TAG: Final = "croupier.lab/croupier"
INSTALL_DIR: Final = "/opt/croupier"
"""Installation folder in the image."""
IMAGE_CONFIG: Final = ImageConfig(
    ("/usr/bin/croupier",),
    user="65532:65532",
    environment=("PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"),
)
REMOVED_FOLDERS: Final = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "var/cache/apt",
    "var/lib/apt/lists",
)


def obstacle() -> str | None:
    """Why the image cannot be built here, with advice; None if it can."""
    if not (CHECKOUT / "image" / "packages").exists():
        return "The image can only be built from a checkout of the source, and this is an installed package."
    if os.geteuid() != 0:
        return "debootstrap needs root: run the same command as root."
    if _debootstrap() is None:
        return "The image needs debootstrap: run `make setup` as root, or `apt-get install debootstrap`."
    return None


async def build(archive: Path, cache: Path, show: ProgressReporter, *, tag: str) -> Packed:
    """Write the image to `archive`."""
    if reason := obstacle():
        raise LabError(reason)
    base = await _with_python_packages(await _base(cache, show), show)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        root = Path(folder, "root")
        await output("cp", "--archive", "--reflink=auto", str(base), str(root))
        show.step("Installing Croupier into the image")
        await _install(root)
        show.step(f"Packing {tag}")
        return await asyncio.to_thread(image.pack, root, archive, tag=tag, running=IMAGE_CONFIG)


@dataclass(frozen=True, slots=True)
class CachedImage:
    """An archive in the cache; its name contains a digest of its inputs."""

    archive: Path
    repository: str
    tag: str


async def cached(cache: Path, show: ProgressReporter) -> CachedImage:
    """The image of this checkout; rebuilt only if one of its inputs changed."""
    if reason := obstacle():
        raise LabError(reason)
    digest = await asyncio.to_thread(_content)
    repository, version = f"{TAG}/{digest}", metadata.version("croupier")
    image_file = CachedImage(cache / "own-image" / f"{digest}.tar", repository, f"{repository}:{version}")
    if not image_file.archive.exists():
        image_file.archive.parent.mkdir(parents=True, exist_ok=True)
        outdated = list(image_file.archive.parent.glob("*.tar"))
        unfinished = image_file.archive.with_suffix(f".{os.getpid()}")
        await build(unfinished, cache, show, tag=image_file.tag)
        unfinished.rename(image_file.archive)
        for path in outdated:
            path.unlink(missing_ok=True)
    return image_file


def _content() -> str:
    content = hashlib.sha256(metadata.version("croupier").encode())
    inputs = [*(CHECKOUT / "src" / "croupier").rglob("*"), *(CHECKOUT / "image").iterdir()]
    for path in sorted(file for file in inputs if file.is_file() and file.suffix != ".pyc"):
        content.update(str(path.relative_to(CHECKOUT)).encode() + path.read_bytes())
    return content.hexdigest()[:12]


def _debootstrap() -> str | None:
    return shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


async def _base(cache: Path, show: ProgressReporter) -> Path:
    """Debian root file system with the packages of the list, cached."""
    packages = (CHECKOUT / "image" / "packages").read_text().split()
    named = hashlib.sha256(f"{SUITE} {sorted(packages)}".encode()).hexdigest()[:16]
    done = cache / "image" / named
    if done.exists():
        return done
    show.step(
        f"Creating a Debian root file system ({SUITE}: {', '.join(packages)}); one to two minutes, once"
    )
    unfinished = done.with_name(f"{named}.part")
    await asyncio.to_thread(shutil.rmtree, unfinished, ignore_errors=True)
    done.parent.mkdir(parents=True, exist_ok=True)
    options = ("--variant=minbase", f"--include={','.join(packages)}")
    await output(_debootstrap() or "debootstrap", *options, SUITE, str(unfinished))
    for folder in REMOVED_FOLDERS:
        await asyncio.to_thread(shutil.rmtree, unfinished / folder, ignore_errors=True)
    unfinished.rename(done)
    return done


async def _with_python_packages(base: Path, show: ProgressReporter) -> Path:
    """The base with the locked Python packages, cached."""
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
        await _compile(unfinished, INSTALL_DIR)
        if not done.exists():  # another process may have been faster
            await asyncio.to_thread(unfinished.rename, done)
    return done


async def _install(root: Path) -> None:
    await output(*_pip(root), "--no-deps", "--no-build-isolation", str(CHECKOUT))
    await _compile(root, f"{INSTALL_DIR}/croupier")
    shutil.copy(CHECKOUT / "image" / "croupier", root / "usr" / "bin" / "croupier")


async def _compile(root: Path, folder: str) -> None:
    """Compile with the Python of the image, because start-up without bytecode is three times slower.

    The bytecode is not checked against the source, because an image does not keep file times. The caller's
    Python variables must not apply (`-I`): PYTHONPYCACHEPREFIX would move the bytecode elsewhere.
    """
    compiling = ("python3", "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
    await output("chroot", str(root), *compiling, folder)


def _pip(root: Path) -> tuple[str, ...]:
    target = root / INSTALL_DIR.lstrip("/")
    return (sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", str(target))
