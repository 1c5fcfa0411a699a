"""Images are built without Docker: reproducible, and only from binaries that can start."""

import hashlib
import json
import os
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest

from croupier_lab import elf, image
from croupier_lab.errors import LabError

LOADER = b"/lib64/ld-linux-x86-64.so.2\0"
PT_LOAD, PT_INTERP = 1, 3
AMD64, ARM64, S390 = 62, 183, 22


def binary(*, wide=True, order="<", machine=AMD64, loader: bytes = b"") -> bytes:
    """The header of an ELF file with one segment to load, and one for the `loader` if set."""
    header, segment = (52, 32) if not wide else (64, 56)
    kinds = [PT_LOAD, *([PT_INTERP] if loader else [])]
    behind = header + segment * len(kinds)
    word = "Q" if wide else "I"
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    rest = struct.pack(
        f"{order}HHI{word}{word}{word}IHHHHHH",
        2,
        machine,
        1,
        0,
        header,
        0,
        0,
        header,
        segment,
        len(kinds),
        0,
        0,
        0,
    )
    if wide:
        table = [struct.pack(f"{order}IIQQQQQQ", kind, 0, behind, 0, 0, len(loader), 0, 0) for kind in kinds]
    else:
        table = [struct.pack(f"{order}IIIIIIII", kind, behind, 0, 0, len(loader), 0, 0, 0) for kind in kinds]
    return ident + rest + b"".join(table) + loader


def folder(root: Path) -> Path:
    (root / "bin").mkdir(parents=True)
    (root / "bin/app").write_text("#!/bin/sh\n")
    (root / "bin/app").chmod(0o755)
    (root / "bin/run").symlink_to("app")
    os.link(root / "bin/app", root / "bin/twin")
    (root / "empty").mkdir()
    return root


def layer(packed: image.Packed) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(packed.archive) as outer:
        inner = outer.extractfile("layer.tar")
        assert inner is not None
        with tarfile.open(fileobj=inner) as tar:
            return {entry.name: entry for entry in tar}


def config(packed: image.Packed) -> dict[str, Any]:
    with tarfile.open(packed.archive) as outer:
        manifest_file = outer.extractfile("manifest.json")
        assert manifest_file is not None
        [manifest] = json.load(manifest_file)
        assert manifest["RepoTags"] == [packed.tag]
        config_file = outer.extractfile(manifest["Config"])
        layer_file = outer.extractfile(manifest["Layers"][0])
        assert config_file is not None
        assert layer_file is not None
        content = config_file.read()
        diff = f"sha256:{hashlib.sha256(layer_file.read()).hexdigest()}"
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == packed.digest
    read: dict[str, Any] = json.loads(content)
    assert read["rootfs"]["diff_ids"] == [diff]
    return read


def test_the_same_content_has_the_same_bytes_whenever_and_wherever_it_is_packed(tmp_path):
    one, other = folder(tmp_path / "one"), folder(tmp_path / "other")
    os.utime(other / "bin/app", (1, 1))
    (other / "empty").rmdir()
    (other / "empty").mkdir()  # created last: another order on disk

    first = image.pack(one, tmp_path / "first.tar", tag="app:1")
    second = image.pack(other, tmp_path / "second.tar", tag="app:1")

    assert first.digest == second.digest
    assert first.archive.read_bytes() == second.archive.read_bytes()


def test_other_content_has_another_digest(tmp_path):
    root = folder(tmp_path / "root")
    before = image.pack(root, tmp_path / "image.tar", tag="app:1")
    (root / "bin/app").write_text("#!/bin/sh\necho changed\n")

    assert image.pack(root, tmp_path / "image.tar", tag="app:1").digest != before.digest


def test_a_folder_arrives_with_its_links_modes_and_empty_folders_and_belongs_to_root(tmp_path):
    packed = image.pack(folder(tmp_path / "root"), tmp_path / "image.tar", tag="app:1")
    entries = layer(packed)

    assert list(entries) == ["bin", "bin/app", "bin/run", "bin/twin", "empty"]
    assert entries["bin/app"].mode == 0o755
    assert (entries["bin/run"].issym(), entries["bin/run"].linkname) == (True, "app")
    assert (entries["bin/twin"].islnk(), entries["bin/twin"].linkname) == (True, "bin/app")
    assert entries["empty"].isdir()
    assert {(e.uid, e.gid, e.mtime, e.uname) for e in entries.values()} == {(0, 0, 0, "")}
    assert config(packed)["config"]["Entrypoint"] == []


def test_a_link_out_of_the_folder_stays_a_link(tmp_path):
    root = folder(tmp_path / "root")
    (root / "outside").symlink_to("/etc")

    entries = layer(image.pack(root, tmp_path / "image.tar", tag="app:1"))

    assert entries["outside"].issym()
    assert not any(name.startswith("outside/") for name in entries)


def test_a_static_binary_runs_itself(tmp_path):
    (tmp_path / "agent").write_bytes(binary(machine=ARM64))
    (tmp_path / "agent").chmod(0o755)

    packed = image.pack(tmp_path / "agent", tmp_path / "image.tar", tag="agent:1")

    assert list(layer(packed)) == ["agent"]
    assert config(packed)["config"]["Entrypoint"] == ["/agent"]
    assert config(packed)["architecture"] == "arm64"


def test_a_binary_may_be_given_another_command(tmp_path):
    (tmp_path / "agent").write_bytes(binary())

    packed = image.pack(
        tmp_path / "agent",
        tmp_path / "image.tar",
        tag="agent:1",
        running=image.ImageConfig(("/agent", "--loud")),
    )

    assert config(packed)["config"]["Entrypoint"] == ["/agent", "--loud"]


BINARIES = {
    "64 bits, static": (binary(), elf.Binary("amd64")),
    "64 bits, dynamic": (binary(loader=LOADER), elf.Binary("amd64", LOADER[:-1].decode())),
    "32 bits, static": (binary(wide=False, machine=3), elf.Binary("386")),
    "32 bits, dynamic": (
        binary(wide=False, machine=40, loader=b"/lib/ld.so\0"),
        elf.Binary("arm", "/lib/ld.so"),
    ),
    "the other byte order": (
        binary(order=">", machine=S390, loader=LOADER),
        elf.Binary("machine-22", LOADER[:-1].decode()),
    ),
    "a script": (b"#!/bin/sh\necho not a binary at all\n", None),
    "an empty file": (b"", None),
    "truncated header": (binary()[:30], None),
    "truncated segments": (binary(loader=LOADER)[:80], None),
}


@pytest.mark.parametrize(("data", "understood"), BINARIES.values(), ids=BINARIES)
def test_what_a_binary_says_about_itself(data, understood):
    assert elf.read(data) == understood


REFUSED = {
    "a dynamic binary": (binary(loader=LOADER), "linked dynamically.*ld-linux-x86-64.*statically"),
    "a script": (b"#!/bin/sh\n", "not an ELF binary"),
}


@pytest.mark.parametrize(("data", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_could_not_start_is_refused(tmp_path, data, sentence):
    (tmp_path / "agent").write_bytes(data)

    with pytest.raises(LabError, match=sentence):
        image.pack(tmp_path / "agent", tmp_path / "image.tar", tag="agent:1")

    assert not (tmp_path / "image.tar").exists()


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(LabError, match="nowhere does not exist"):
        image.pack(tmp_path / "nowhere", tmp_path / "image.tar", tag="app:1")


TAGS = {
    "app": "app:latest",
    "app:1": "app:1",
    "team/app:v1.2-rc_3": "team/app:v1.2-rc_3",
    "croupier.lab/busybox:1": "croupier.lab/busybox:1",
    "localhost:5000/app": "localhost:5000/app:latest",
}


@pytest.mark.parametrize(("tag", "full"), TAGS.items())
def test_names_of_images(tag, full):
    assert image.full_tag(tag) == full


@pytest.mark.parametrize("tag", ["App:1", "app:", "app: 1", "", "-app:1", "app/:1", "app:1:2"])
def test_invalid_image_names_are_rejected(tag):
    with pytest.raises(LabError, match="not a valid image name"):
        image.full_tag(tag)
