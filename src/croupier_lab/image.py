"""Build images without Docker: a folder or a static binary becomes a docker-archive with one layer.

Builds are reproducible: entries are sorted, owned by root and have no time. Owners, times, extended
attributes and sockets are not kept.
"""

import asyncio
import hashlib
import io
import json
import os
import platform
import re
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from croupier_lab import elf
from croupier_lab.errors import LabError

BUSYBOX = "croupier.lab/busybox:1"
PAUSE = "croupier.lab/pause:1"

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_EPOCH = "1970-01-01T00:00:00Z"
_CHUNK = 1 << 20
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_TAG = re.compile(
    r"([a-z0-9.-]+(:[0-9]+)?/)?"  # registry
    r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
)


@dataclass(frozen=True, slots=True)
class Packed:
    """An archive on disk; `digest` is the image ID, as in the container status."""

    tag: str
    digest: str
    archive: Path


def full_tag(tag: str) -> str:
    """`tag` with a version; raises a LabError if it is not a valid image name."""
    full = tag if ":" in tag.rpartition("/")[2] else f"{tag}:latest"
    if not _TAG.fullmatch(full):
        raise LabError(
            f"{tag!r} is not a valid image name: use lower-case letters, digits, '.', '_', '-' and '/', "
            "and a version after ':', as in team/app:1."
        )
    return full


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """Configuration of the image; the entry point of a binary defaults to itself."""

    entrypoint: tuple[str, ...] = ()
    user: str = ""
    environment: tuple[str, ...] = ()


DEFAULT_CONFIG = ImageConfig()


def pack(source: Path, archive: Path, *, tag: str, running: ImageConfig = DEFAULT_CONFIG) -> Packed:
    """Write `source`, a root file system or a static binary, to `archive` as the image `tag`."""
    tag = full_tag(tag)
    if not source.exists():
        raise LabError(f"{source} does not exist: use a folder or a statically linked binary.")
    if source.is_dir():
        architecture = _MACHINES.get(platform.machine(), platform.machine())
    else:
        architecture = elf.static(source).architecture
        running = replace(running, entrypoint=running.entrypoint or (f"/{source.name}",))
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=archive.parent) as layer:
        _write_layer(source, layer)
        config = _config(_digest(layer), architecture, running)
        _write_archive(archive, layer, config=config, tag=tag)
    return Packed(tag, f"sha256:{hashlib.sha256(config).hexdigest()}", archive)


async def pack_busybox(busybox: Path, folder: Path) -> tuple[Packed, ...]:
    """The two images of every real node: busybox and the pause image."""
    elf.static(busybox)
    applets = await _applets(busybox)

    def build() -> tuple[Packed, ...]:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as staging:
            root = Path(staging, "root")
            _busybox_root(root, busybox.read_bytes(), applets)
            return (
                pack(root, folder / "busybox.tar", tag=BUSYBOX),
                pack(
                    root, folder / "pause.tar", tag=PAUSE, running=ImageConfig(("/bin/sleep", "2147483647"))
                ),
            )

    return await asyncio.to_thread(build)


async def _applets(busybox: Path) -> list[str]:
    listing = await asyncio.create_subprocess_exec(
        busybox, "--list", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    output, _ = await listing.communicate()
    return [name for name in output.decode().split() if name != "busybox"]


def _busybox_root(root: Path, program: bytes, applets: list[str]) -> None:
    for name in ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "var"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "bin/busybox").write_bytes(program)
    (root / "bin/busybox").chmod(0o755)
    for name in applets:
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
    )
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")


def _write_layer(source: Path, layer: IO[bytes]) -> None:
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, name in _entries(source):
            entry = tar.gettarinfo(path, arcname=name)
            if entry is None:  # sockets are not packed
                continue
            _add(tar, _plain(entry), path)


def _entries(source: Path) -> Iterator[tuple[Path, str]]:
    """Files with their names in the image, sorted, parents before children."""
    if not source.is_dir():
        yield source.resolve(), source.name
        return
    names: list[str] = []
    for folder, folders, files in os.walk(source):
        inside = Path(folder).relative_to(source)
        names.extend((inside / name).as_posix() for name in (*folders, *files))
    for name in sorted(names):
        yield source / name, name


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime = 0
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _add(tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    if not entry.isreg():
        tar.addfile(entry)
        return
    with path.open("rb") as content:
        tar.addfile(entry, content)


def _digest(layer: IO[bytes]) -> str:
    layer.seek(0)
    digest = hashlib.sha256()
    while chunk := layer.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _config(layer: str, architecture: str, running: ImageConfig) -> bytes:
    config = {
        "architecture": architecture,
        "config": {
            "Entrypoint": list(running.entrypoint),
            "Env": [_PATH, *running.environment],
            "User": running.user,
            "WorkingDir": "/",
        },
        "created": _EPOCH,
        "history": [{"created": _EPOCH, "created_by": "croupier lab image"}],
        "os": "linux",
        "rootfs": {"diff_ids": [f"sha256:{layer}"], "type": "layers"},
    }
    return json.dumps(config, sort_keys=True).encode()


def _write_archive(archive: Path, layer: IO[bytes], *, config: bytes, tag: str) -> None:
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "Layers": ["layer.tar"], "RepoTags": [tag]}]
    unfinished = archive.with_name(f"{archive.name}.part")
    with tarfile.open(unfinished, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add_bytes(tar, "manifest.json", io.BytesIO(json.dumps(manifest).encode()))
        _add_bytes(tar, config_name, io.BytesIO(config))
        _add_bytes(tar, "layer.tar", layer)
    unfinished.replace(archive)


def _add_bytes(tar: tarfile.TarFile, name: str, content: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = content.seek(0, io.SEEK_END)
    entry.mode = 0o644
    content.seek(0)
    tar.addfile(entry, content)
