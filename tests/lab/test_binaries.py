"""Binaries are searched in a fixed order, and rejected ones are reported with a reason."""

from pathlib import Path

import pytest

from croupier_lab import binaries
from croupier_lab.binaries import BinarySources


def program(folder: Path, name: str, says: str = "Kubernetes v1.36.4") -> Path:
    """A program that prints its version."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


class BinarySearchEnv:
    """The folders of a search."""

    def __init__(self, root: Path) -> None:
        self.named, self.assets, self.path = root / "named", root / "assets", root / "path"
        self.cache = root / "cache"

    def search(self, *names: str) -> binaries.BinarySearch:
        env = {
            "KUBEBUILDER_ASSETS": str(self.assets),
            "PATH": f"{self.path}:/nowhere",
            "CROUPIER_CACHE": str(self.cache),
        }
        return binaries.search(names, BinarySources(named=self.named, env=env))


@pytest.fixture
def world(tmp_path):
    return BinarySearchEnv(tmp_path)


def test_search_order_is_bin_assets_path_cache(world):
    in_order = [
        (world.named, "--bin"),
        (world.assets, "KUBEBUILDER_ASSETS"),
        (world.path, "PATH"),
        (binaries.in_cache("kube-apiserver", world.cache).parent, "cache"),
    ]
    for folder, _ in in_order:
        program(folder, "kube-apiserver")

    for folder, source in in_order:
        found = world.search("kube-apiserver").found["kube-apiserver"]
        assert (found.path, found.source) == (folder / "kube-apiserver", source)
        found.path.unlink()

    assert world.search("kube-apiserver").missing == ("kube-apiserver",)


def test_an_unsupported_version_is_rejected_with_a_reason(world):
    old = program(world.path, "kubectl", says="Client Version: v1.32.4")
    good = program(binaries.in_cache("kubectl", world.cache).parent, "kubectl")

    search = world.search("kubectl")

    assert search.found["kubectl"].path == good
    assert [str(rejected) for rejected in search.rejected] == [
        f"kubectl at {old} (PATH) was rejected: its version is 1.32.4; the lab needs 1.35 to 1.37"
    ]


def test_rejected_binaries_are_reported_if_no_other_is_found(world):
    program(world.named, "etcd", says="etcd Version: 3.3.0")

    search = world.search("etcd", "kwok")

    assert search.missing == ("etcd", "kwok")
    assert [rejected.reason for rejected in search.rejected] == [
        "its version is 3.3.0; the lab needs 3.5 or later"
    ]


def test_a_file_that_is_not_executable_is_ignored(world):
    program(world.named, "etcd", says="etcd Version: 3.6.8").chmod(0o644)

    assert world.search("etcd").missing == ("etcd",)


def test_a_program_that_fails_is_rejected(world):
    program(world.named, "etcd").write_text("not a program at all")

    search = world.search("etcd")

    assert search.missing == ("etcd",)
    assert "its version is unknown" in search.rejected[0].reason


def test_a_program_behind_a_symlink_is_checked_once(world, tmp_path):
    old = program(world.path, "kubectl", says="Client Version: v1.32.4")
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "kubectl").symlink_to(old)

    assert len(world.search("kubectl").rejected) == 1


def test_stages_are_used_only_if_complete(tmp_path):
    for name in ("node-initialize", "node-heartbeat-with-lease", "pod-ready", "pod-complete"):
        (tmp_path / f"{name}.yaml").touch()

    assert binaries.stages_in(tmp_path, pods=True) is None
    nodes_only = binaries.stages_in(tmp_path, pods=False)
    assert nodes_only is not None
    assert [path.stem for path in nodes_only] == ["node-initialize", "node-heartbeat-with-lease"]
