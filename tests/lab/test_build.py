"""Builds run once, resume after an interruption, and report their log on failure.

A shell script replaces the Go tool chain.
"""

import asyncio
import os

import pytest

from croupier_lab import binaries, build, golang, pinned, provisioning
from croupier_lab.binaries import BinarySources
from croupier_lab.errors import LabError
from croupier_lab.progress import LogProgress

GO = r"""#!/bin/sh
echo "$*" >> "$GO_CALLS"
case "$1" in
  env) echo "${GO_VERSION:-go1.26.8}" ;;
  list) echo "go: downloading example.org/x v1.0.0" >&2; echo fmt; echo net; echo "$5" ;;
  mod) printf '{"Path": "x", "Dir": "%s"}\n' "$GO_MODULE" ;;
  build)
    while [ "$1" != "-o" ]; do shift; done
    case "$2" in *"${GO_FAILS:-nothing}") echo "fmt.go:1: it does not compile" >&2; exit 1 ;; esac
    if [ -n "$GO_HANGS" ]; then touch "$GO_HANGS"; exec sleep 600; fi
    echo fmt >&2; echo net >&2
    printf '#!/bin/sh\necho built\n' > "$2"; chmod +x "$2" ;;
esac
"""


class BuildEnv:
    """A machine with this Go on its PATH and nothing in the cache."""

    def __init__(self, root, monkeypatch) -> None:
        self.cache = root / "cache"
        self.calls = root / "calls"
        self.lines: list[str] = []
        self.show = LogProgress(self.lines.append, monotonic=lambda: 0.0)
        self._setenv = monkeypatch.setenv
        go = root / "bin" / "go"
        go.parent.mkdir()
        go.write_text(GO)
        go.chmod(0o755)
        module = root / "module"
        for stage in (*pinned.NODE_STAGES, *pinned.POD_STAGES):
            (module / stage).parent.mkdir(parents=True, exist_ok=True)
            (module / stage).write_text(f"stage: {stage}")
        self.given(PATH=f"{go.parent}:{os.environ['PATH']}", GO_CALLS=self.calls, GO_MODULE=module)

    def given(self, **env: object) -> None:
        for name, value in env.items():
            self._setenv(name, str(value))

    def has(self, name: str) -> bool:
        return binaries.in_cache(name, self.cache).is_file()

    def built(self) -> list[str]:
        """The programs Go was asked to build, in order."""
        calls = self.calls.read_text().splitlines() if self.calls.exists() else []
        outputs = [call.split(" -o ")[1].split()[0] for call in calls if call.startswith("build")]
        return [output.rsplit("/", 1)[1] for output in outputs]

    async def build(self, *names: str) -> None:
        await build.build(names, self.cache, self.show)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return BuildEnv(tmp_path, monkeypatch)


async def test_missing_programs_are_built_one_by_one(machine):
    await machine.build("etcd", "kubectl", "ctr")

    assert machine.built() == ["etcd", "kubectl", "ctr"]
    assert all(map(machine.has, ("etcd", "kubectl", "ctr")))


async def test_a_person_sees_which_program_and_how_far(machine):
    await machine.build("etcd", "kubectl")

    assert "Building etcd (1 of 2), packages compiled: 0 of 4, 0 s" in machine.lines
    assert "Building kubectl (2 of 2), packages compiled: 3 of 4, 0 s" in machine.lines
    assert "Built kubectl (2 of 2)" in machine.lines


async def test_the_second_time_nothing_is_built(machine):
    await machine.build("etcd")
    machine.calls.unlink()
    await machine.build("etcd")

    assert not machine.calls.exists()


async def test_after_a_failure_what_was_finished_stays_and_the_log_is_named(machine):
    machine.given(GO_FAILS="kubectl")
    with pytest.raises(LabError) as failure:
        await machine.build("etcd", "kubectl", "kwok")

    log = machine.cache / "logs" / "build-kubectl.log"
    assert str(failure.value).startswith(f"Building kubectl failed. Its log is {log} and ends:")
    assert "it does not compile" in str(failure.value)

    machine.given(GO_FAILS="nothing")
    machine.calls.unlink()
    await machine.build("etcd", "kubectl", "kwok")
    assert machine.built() == ["kubectl", "kwok"]


async def test_an_interrupted_build_leaves_nothing_half_done_in_the_cache(machine, tmp_path):
    hanging = tmp_path / "hanging"
    machine.given(GO_HANGS=hanging)
    task = asyncio.create_task(machine.build("etcd"))
    async with asyncio.timeout(20):
        while not hanging.exists():  # noqa: ASYNC110 (polls a file)
            await asyncio.sleep(0.01)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not machine.has("etcd")
    machine.given(GO_HANGS="")
    await machine.build("etcd")
    assert machine.has("etcd")


async def test_concurrent_builds_wait_for_each_other(machine):
    await asyncio.gather(machine.build("etcd"), machine.build("etcd"))

    assert machine.built() == ["etcd"]
    assert "Another process is building the lab's binaries: waiting for it to finish" in machine.lines


async def test_kwok_comes_with_its_stages(machine):
    env = {"CROUPIER_CACHE": str(machine.cache), "PATH": ""}

    provisioned = await provisioning.ensure(["kwok"], BinarySources(env=env), machine.show, pods_run=False)

    assert provisioned.binaries["kwok"] == binaries.in_cache("kwok", machine.cache)
    assert [stage.name for stage in provisioned.stages] == [
        "node-initialize.yaml",
        "node-heartbeat-with-lease.yaml",
    ]


async def test_a_rejected_binary_is_reported_before_it_is_built(machine, tmp_path):
    old = tmp_path / "old" / "etcd"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho etcd Version: 3.1.0\n")
    old.chmod(0o755)
    env = {"CROUPIER_CACHE": str(machine.cache), "PATH": ""}

    await provisioning.ensure(["etcd"], BinarySources(named=old.parent, env=env), machine.show)

    assert machine.lines[0].endswith("was rejected: its version is 3.1.0; the lab needs 3.5 or later")


async def test_clearing_the_cache_removes_read_only_folders(machine):
    await machine.build("etcd")
    folder = machine.cache / "go-path" / "pkg"
    folder.mkdir(parents=True)
    (folder / "file").touch()
    folder.chmod(0o500)

    await provisioning.clear(machine.cache, machine.show)

    assert [path.name for path in machine.cache.iterdir()] == ["build.lock"]


GO_VERSIONS = {
    "go1.26.8": True,
    "go1.26.6": True,
    "go1.27": True,
    "go2.0.1": True,
    "go1.26.5": False,
    "go1.26": False,
    "go1.19.8": False,
    "devel": False,
    "": False,
}


@pytest.mark.parametrize(("version", "enough"), GO_VERSIONS.items())
def test_which_go_is_new_enough(version, enough):
    assert golang.new_enough(version) is enough


async def test_a_go_that_is_too_old_is_not_used(machine, tmp_path):
    machine.given(GO_VERSION="go1.19.8")
    ours = machine.cache / f"{golang.PACKAGE}-{golang.PACKAGE_VERSION}" / "go" / "bin" / "go"
    ours.parent.mkdir(parents=True)
    ours.touch()

    go = await golang.find(machine.cache, machine.show)

    assert go.path == ours
    assert go.env["GOTOOLCHAIN"] == "local"
