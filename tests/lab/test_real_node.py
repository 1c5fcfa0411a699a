"""This machine as a node, with a real kubelet and containerd."""

import asyncio
import json
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from croupier_lab import cgroup, cni, image, process, realnode, relay
from croupier_lab.cli import image as image_command
from croupier_lab.errors import LabError
from croupier_lab.lab import Lab
from tests.polling import until_blocking

SECONDS = 40


def pod(node: str, *command: str, name: str = "p", tag: str = image.BUSYBOX, **container: Any) -> str:
    shown = {"name": "c", "image": tag, "imagePullPolicy": "Never", **container}
    if command:
        shown["command"] = list(command)
    spec = {
        "nodeName": node,
        "automountServiceAccountToken": False,  # needs a controller manager
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [shown],
    }
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def run(lab: Lab, namespace: str, manifest: str, *, phase: str = "Running") -> None:
    lab.kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)
    name = json.loads(manifest)["metadata"]["name"]
    reached = f"--for=jsonpath={{.status.phase}}={phase}"
    lab.kubectl("wait", "-n", namespace, f"pod/{name}", reached, "--timeout=60s")


def test_the_node_is_ready_under_its_own_name(lab, real_node):
    info = json.loads(lab.kubectl("get", "node", real_node, "-o", "json").stdout)["status"]

    assert {"type": "Ready", "status": "True"}.items() <= next(
        c for c in info["conditions"] if c["type"] == "Ready"
    ).items()
    assert info["nodeInfo"]["kubeletVersion"].startswith("v1.36.")
    assert info["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://2.")


def test_a_pod_runs_and_answers(lab, real_node, namespace):
    run(lab, namespace, pod(real_node, "sh", "-c", "echo dealt; sleep 3600"))

    assert lab.kubectl("logs", "p", "-n", namespace).stdout == "dealt\n"
    reasons = lab.kubectl(
        "get", "events", "-n", namespace, "-o", "jsonpath={.items[*].reason}"
    ).stdout.split()
    assert "Started" in reasons
    assert "MissingClusterDNS" not in reasons
    answer = lab.kubectl("exec", "p", "-n", namespace, "--", "sh", "-c", "id -u; ls /bin/busybox")
    assert answer.stdout == "0\n/bin/busybox\n"


def test_pods_reach_each_other_and_the_node(lab, real_node, namespace):
    serve = "mkdir /tmp/w; echo card > /tmp/w/index.html; exec httpd -f -p 80 -h /tmp/w"
    run(lab, namespace, pod(real_node, "sh", "-c", serve, name="server"))
    run(lab, namespace, pod(real_node, "sleep", "3600", name="client"))
    address = lab.kubectl("get", "pod", "server", "-n", namespace, "-o", "jsonpath={.status.podIP}").stdout

    answer = lab.kubectl("exec", "client", "-n", namespace, "--", "wget", "-qO-", f"http://{address}/")

    assert answer.stdout == "card\n"


def test_pods_reach_the_api_server(lab, real_node, namespace):
    where = "jsonpath={.status.addresses[0].address}"
    address = lab.kubectl("get", "node", real_node, "-o", where).stdout
    run(lab, namespace, pod(real_node, "sleep", "3600"))

    ask = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 10 {address} {relay.PORT}"
    answer = lab.kubectl("exec", "p", "-n", namespace, "--", "sh", "-c", ask)

    assert "HTTPS server" in answer.stdout  # the error of a TLS server


def quota(container: str) -> str:
    """The CPU quota of a container in microseconds per 100,000, for cgroup v1 and v2."""
    for hierarchy in cgroup.hierarchies():
        for group in hierarchy.glob(f"croupier-*/**/{container}"):
            for file in ("cpu.cfs_quota_us", "cpu.max"):
                if (group / file).exists():
                    return (group / file).read_text().split()[0]
    return "nowhere"


def test_a_resize_in_place_reaches_the_control_group(lab, real_node, namespace):
    def cpu(amount: str) -> dict[str, Any]:
        return {"requests": {"cpu": amount}, "limits": {"cpu": amount}}

    run(lab, namespace, pod(real_node, "sleep", "3600", resources=cpu("200m")))
    path = "jsonpath={.status.containerStatuses[0].containerID}"
    container = lab.kubectl("get", "pod", "p", "-n", namespace, "-o", path).stdout.removeprefix(
        "containerd://"
    )
    assert quota(container) == "20000"

    change = {"spec": {"containers": [{"name": "c", "resources": cpu("300m")}]}}
    lab.kubectl("patch", "pod", "p", "-n", namespace, "--subresource=resize", "-p", json.dumps(change))

    until_blocking(lambda: quota(container) == "30000", "a quota of 300m")


@pytest.fixture
def named_lab(lab, real_node, tmp_path, monkeypatch) -> str:
    """The shared lab, registered under a name for the command line."""
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs" / "here").symlink_to(lab.folder)
    monkeypatch.setenv("CROUPIER_HOME", str(tmp_path))
    return "here"


def lab_image_command(*arguments: object) -> str:
    import typer

    app = typer.Typer()
    app.command()(image_command.image)
    ended = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    return ended.output


def test_a_folder_becomes_an_image_pods_can_use(lab, real_node, namespace, named_lab, tmp_path):
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "", root / "bin/busybox")
    (root / "bin/sh").symlink_to("busybox")
    (root / "hello").write_text("#!/bin/sh\necho from a folder\n")
    (root / "hello").chmod(0o755)

    said = lab_image_command(root, "--tag", "test/folder:1", "--entrypoint", "/hello", "--name", named_lab)
    assert said == "Loaded test/folder:1 into the real node of lab here.\n"

    run(lab, namespace, pod(real_node, tag="test/folder:1"), phase="Succeeded")
    assert lab.kubectl("logs", "p", "-n", namespace).stdout == "from a folder\n"


def test_a_static_binary_becomes_an_image_pods_can_use(lab, real_node, namespace, named_lab, tmp_path):
    binary = tmp_path / "cat"  # busybox selects the applet by its name
    shutil.copy(shutil.which("busybox") or "", binary)

    said = lab_image_command(binary, "--tag", "binary", "--name", named_lab)
    assert "Loaded binary:latest" in said
    assert "imagePullPolicy: Never" in said

    run(lab, namespace, pod(real_node, tag="binary", args=["/etc/hostname"]), phase="Succeeded")
    assert lab.kubectl("logs", "p", "-n", namespace).stdout == "p\n"


def test_an_archive_can_be_written_without_any_lab(tmp_path):
    (tmp_path / "root").mkdir()

    said = lab_image_command(tmp_path / "root", "--tag", "a:1", "--output", tmp_path / "a.tar")

    assert "Wrote a:1 (sha256:" in said
    assert (tmp_path / "a.tar").stat().st_size > 0


def test_a_lab_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("CROUPIER_HOME", str(tmp_path))

    with pytest.raises(LabError, match=r"There is no lab nope: .*--real-node --name nope"):
        lab_image_command(tmp_path, "--tag", "a:1", "--name", "nope")


def test_a_device_described_by_cdi_reaches_a_container(lab, real_node):
    device = {"name": "card0", "containerEdits": {"env": ["CROUPIER_CARD=ace"]}}
    spec = {"cdiVersion": "0.6.0", "kind": "croupier.test/card", "devices": [device], "containerEdits": {}}
    here = realnode.paths_of(lab)
    (here.cdi / "croupier-test.json").write_text(json.dumps(spec))

    ctr = (*realnode.inside(lab), lab.record.binaries["ctr"], "--namespace", "k8s.io", "run", "--rm")
    where = ("--snapshotter", "native", "--cgroup", f"/{here.cgroup}/cdi")
    what = ("--device", "croupier.test/card=card0", image.BUSYBOX, "cdi-test", "/bin/env")
    ended = subprocess.run([*ctr, *where, *what], capture_output=True, text=True, check=False)

    assert "CROUPIER_CARD=ace" in ended.stdout.splitlines(), ended.stderr


def test_device_plugin_sockets_are_reachable_by_a_short_path(lab, real_node):
    path = realnode.paths_of(lab).plugins / "device-plugins" / "kubelet.sock"

    with socket.socket(socket.AF_UNIX) as plugin:
        plugin.connect(str(path))

        assert plugin.getpeername().endswith("kubelet.sock")


def started_at(lab: Lab, part: str) -> float:
    return lab.process(part).created


@pytest.mark.parametrize("part", [realnode.CONTAINERD, realnode.KUBELET])
async def test_a_component_restarts_and_pods_keep_running(lab, real_node, namespace, part):
    await asyncio.to_thread(run, lab, namespace, pod(real_node, "sleep", "3600"))
    before = started_at(lab, part)

    lab.kill(part)
    await realnode.restart(lab, part)

    assert started_at(lab, part) > before
    until_blocking(
        lambda: lab.kubectl("exec", "p", "-n", namespace, "--", "true", check=False).returncode == 0,
        "an answer",
    )
    path = "jsonpath={.status.containerStatuses[0].restartCount}"
    assert lab.kubectl("get", "pod", "p", "-n", namespace, "-o", path).stdout == "0"


def traces(lab: Lab) -> dict[str, object]:
    """Remains of a lab's real node on this machine."""
    here = realnode.paths_of(lab)
    marks = (str(here.state), str(here.run), here.cgroup)
    remains = {
        "processes": [running.pid for running in realnode.remaining_processes(here)],
        "containers": contained(here.cgroup),
        "control groups": [str(h / here.cgroup) for h in cgroup.hierarchies() if (h / here.cgroup).exists()],
        "mounts": [line for line in mounts() if any(mark in line for mark in marks)],
        "bridge": Path("/sys/class/net", cni.bridge_name(here.id)).exists(),
        "iptables": cni.network_name(here.id) in saved_rules(),
        "folders": [str(path) for path in (here.run, here.state) if path.exists()],
    }
    return {kind: trace for kind, trace in remains.items() if trace}


def contained(group: str) -> list[int]:
    pids = []
    for one in psutil.process_iter():
        try:
            if f"/{group}/" in Path(f"/proc/{one.pid}/cgroup").read_text():
                pids.append(one.pid)
        except OSError:
            continue  # it has ended
    return pids


def mounts() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


def saved_rules() -> str:
    return subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout


def crash(lab: Lab) -> None:
    for name in realnode.PROGRAMS:
        process.kill(lab.process(name))


ENDINGS: dict[str, Callable[[Lab], None]] = {"a clean stop": lambda lab: None, "a crash": crash}


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
async def test_leaving_removes_everything_of_the_node(private_lab, lab, real_node, ending):
    own = await private_lab()
    own.remember(binaries={**own.record.binaries, **lab.record.binaries}, real_node="second")
    own.adopt(*await realnode.join(own, "second"))
    own.kubectl("create", "serviceaccount", "default")
    ports = [{"containerPort": 80, "hostPort": 18080}]
    await asyncio.to_thread(
        run, own, "default", pod("second", "sh", "-c", "sleep 3600 & sleep 3600", ports=ports)
    )
    assert set(traces(own)) == {"processes", "containers", "control groups", "bridge", "iptables", "folders"}

    ending(own)
    await realnode.leave(own)
    await realnode.leave(own)

    assert traces(own) == {}
    assert {"processes", "control groups", "bridge", "folders"} <= set(traces(lab)), "the neighbour lives on"


async def test_a_lab_without_a_real_node_says_so(private_lab):
    own = await private_lab()

    with pytest.raises(LabError, match="has no real node"):
        realnode.inside(own)
    await realnode.leave(own)


def test_the_machine_keeps_its_kernel_settings(lab, real_node):
    """The kubelet sees vm.overcommit_memory = 1 in its namespace and does not change the machine."""
    inside = subprocess.run(
        [*realnode.inside(lab), "cat", "/proc/sys/vm/overcommit_memory"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert inside.stdout == "1\n"
    assert any("/proc/sys/vm/overcommit_memory" in line for line in namespace_mounts(lab))
    assert not any("/proc/sys/vm/overcommit_memory" in line for line in mounts())


def namespace_mounts(lab: Lab) -> list[str]:
    keeper = lab.process(realnode.NAMESPACE_HOLDER)
    return Path(f"/proc/{keeper.pid}/mountinfo").read_text().splitlines()


def test_without_root_the_error_has_advice(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert "needs root" in (realnode.obstacle() or "")


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda program: None if program == "runc" else f"/usr/bin/{program}")

    assert "runc" in (realnode.obstacle() or "")
