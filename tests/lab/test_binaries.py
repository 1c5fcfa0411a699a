"""Programs are looked for in a fixed order, and what is passed over is passed over with a reason."""

from pathlib import Path

import pytest

from croupier.lab import binaries
from croupier.lab.binaries import Sources


def program(folder: Path, name: str, says: str = "Kubernetes v1.36.4") -> Path:
    """A program that knows nothing but its version."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


class World:
    """The folders a search looks at."""

    def __init__(self, root: Path) -> None:
        self.named, self.assets, self.path = root / "named", root / "assets", root / "path"
        self.cache = root / "cache"

    def search(self, *names: str) -> binaries.Search:
        env = {
            "KUBEBUILDER_ASSETS": str(self.assets),
            "PATH": f"{self.path}:/nowhere",
            "CROUPIER_CACHE": str(self.cache),
        }
        return binaries.search(names, Sources(named=self.named, env=env))


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_the_named_folder_comes_first_then_assets_then_path_then_the_cache(world):
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


def test_a_version_that_does_not_fit_is_passed_over_with_the_reason(world):
    old = program(world.path, "kubectl", says="Client Version: v1.32.4")
    good = program(binaries.in_cache("kubectl", world.cache).parent, "kubectl")

    search = world.search("kubectl")

    assert search.found["kubectl"].path == good
    assert [str(passed) for passed in search.passed_over] == [
        f"kubectl at {old} (PATH) was passed over: it is 1.32.4; the lab needs 1.35 to 1.37"
    ]


def test_what_was_passed_over_is_known_even_if_nothing_else_is_found(world):
    program(world.named, "etcd", says="etcd Version: 3.3.0")

    search = world.search("etcd", "kwok")

    assert search.missing == ("etcd", "kwok")
    assert [passed.reason for passed in search.passed_over] == ["it is 3.3.0; the lab needs 3.5 or later"]


def test_a_file_that_cannot_be_run_is_not_a_program(world):
    program(world.named, "etcd", says="etcd Version: 3.6.8").chmod(0o644)

    assert world.search("etcd").missing == ("etcd",)


def test_a_program_that_fails_when_asked_is_passed_over(world):
    program(world.named, "etcd").write_text("not a program at all")

    search = world.search("etcd")

    assert search.missing == ("etcd",)
    assert "does not say its version" in search.passed_over[0].reason


def test_one_program_reached_by_two_names_of_path_is_asked_once(world, tmp_path):
    old = program(world.path, "kubectl", says="Client Version: v1.32.4")
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "kubectl").symlink_to(old)

    assert len(world.search("kubectl").passed_over) == 1


def test_stages_count_only_when_all_are_there(tmp_path):
    for name in ("node-initialize", "node-heartbeat-with-lease", "pod-ready", "pod-complete"):
        (tmp_path / f"{name}.yaml").touch()

    assert binaries.stages_in(tmp_path, pods=True) is None
    nodes_only = binaries.stages_in(tmp_path, pods=False)
    assert nodes_only is not None
    assert [path.stem for path in nodes_only] == ["node-initialize", "node-heartbeat-with-lease"]
