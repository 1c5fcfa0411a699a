"""This machine as a real node of a lab: containerd and a kubelet.

Everything outside of the lab's folder (bridge, cgroup, run folder) is named after that folder, and every
process has the folder in its environment. So `leave` needs no record: it is idempotent and works after a
crash.
"""

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from croupier_lab import (
    certificates,
    cgroup,
    cni,
    containerd,
    elf,
    image,
    kubeconfig,
    kubelet,
    mount_namespace,
    pinned,
    process,
    relay,
)
from croupier_lab.command import output
from croupier_lab.errors import LabError, with_log
from croupier_lab.lab import Lab
from croupier_lab.process import LabProcess, Program
from croupier_lab.real_node_paths import ENV_VARIABLE, RealNodePaths

NAME = "this-machine"
NAMESPACE_HOLDER = "node-namespace"
CONTAINERD = "containerd"
RESOLV_CONF = Path("/etc/resolv.conf")
KUBELET = "kubelet"
RELAY = "api-relay"
CONTAINERD_CONFIG = "containerd.toml"
PROGRAMS = (NAMESPACE_HOLDER, CONTAINERD, KUBELET, RELAY)

PACKAGES = {
    "runc": "runc",
    "iptables-save": "iptables",
    "ip": "iproute2",
    "mount": "mount",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
READY_TIMEOUT = 90.0
STOP_TIMEOUT = 10.0
POLL = 0.05


def paths_of(lab: Lab) -> RealNodePaths:
    return RealNodePaths(lab.folder.resolve())


def obstacle() -> str | None:
    """Why this machine cannot be a real node, with advice; None if it can."""
    if os.geteuid() != 0:
        return (
            "A real node needs root (for mounts, control groups and a bridge): "
            "run the same command as root, or omit --real-node."
        )
    if absent := _absent_packages():
        return (
            f"A real node needs {', '.join(absent)}, which is not installed: "
            f"run `make setup` as root, or `apt-get install {' '.join(absent)}`."
        )
    return None


def _absent_packages() -> list[str]:
    absent = {package for program, package in PACKAGES.items() if shutil.which(program) is None}
    if cni.missing_plugins():
        absent.add("containernetworking-plugins")
    busybox = elf.read(_busybox().read_bytes()) if _busybox().exists() else None
    if busybox is None or busybox.interpreter:  # a dynamic busybox would not run in an image
        absent.add("busybox-static")
    return sorted(absent)


def _busybox() -> Path:
    return Path(shutil.which("busybox") or "/bin/busybox")


async def join(
    lab: Lab, name: str = NAME, settings: Mapping[str, Any] | None = None
) -> tuple[LabProcess, ...]:
    """Join this machine as node `name` and wait until it is Ready; remains of an earlier node are removed.

    `settings` override fields of the KubeletConfiguration.
    """
    reason = obstacle() or _missing_binaries(lab)
    if reason:
        raise LabError(reason)
    await leave(lab)
    started: list[LabProcess] = []
    try:
        await _start(lab, name, settings or {}, started)
    except BaseException:
        await asyncio.shield(leave(lab))
        raise
    return tuple(started)


async def restart(lab: Lab, part: str) -> None:
    """Restart containerd or the kubelet; pods keep running."""
    await process.stop(lab.process(part))
    again = _program(lab, part, inside(lab))
    lab.adopt(process.start(again, lab.logs))
    if part == CONTAINERD:
        await _until_serving(lab.process(part), paths_of(lab).socket)
    else:
        await _until_node_ready(lab, lab.process(part), lab.record.real_node or NAME)


async def leave(lab: Lab) -> None:
    """Undo `join`: remove processes, pods, mounts, network, cgroups and state. Idempotent."""
    here = paths_of(lab)
    if not (here.state.exists() or here.run.exists()):
        return
    await _kill_processes(here, only=(KUBELET, CONTAINERD))  # they would restart the pods
    await cgroup.remove(here.cgroup)  # before the shims, which reap their children
    await _kill_processes(here)
    await cgroup.remove(here.cgroup)  # a shim may have started another process
    await cni.remove_bridge(here.id)
    for path in (here.run, here.state):
        await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


def inside(lab: Lab) -> tuple[str, ...]:
    """Command prefix that runs a program in the node's namespace: `*inside(lab), "ctr", ...`."""
    for running in lab.record.processes:
        if running.name == NAMESPACE_HOLDER and process.alive(running):
            return mount_namespace.nsenter_prefix(running.pid)
    raise LabError(f"Lab {lab.name} has no real node: start it with `croupier lab up --real-node`.")


async def load(lab: Lab, archive: Path) -> None:
    """Load an image into the node, so that pods can use it."""
    await _load(lab, inside(lab), archive)


async def images(lab: Lab, *more: str) -> str:
    """Output of `ctr images ...` on the node; `ls -q` by default."""
    ctr = (*inside(lab), lab.record.binaries["ctr"], "--address", containerd.SOCKET)
    return await output(*ctr, "--namespace", containerd.NAMESPACE, "images", *(more or ("ls", "-q")))


async def _load(lab: Lab, within: tuple[str, ...], archive: Path) -> None:
    configured = (paths_of(lab).state / CONTAINERD_CONFIG).read_text()
    ctr = (*within, lab.record.binaries["ctr"])
    await containerd.load(ctr, archive, containerd.snapshotter_of(configured))


def _relay(lab: Lab, address: str) -> Program:
    """The relay through which pods reach the API server, on the address of the bridge."""
    server = lab.server.partition("//")[2]
    command = (sys.executable, "-m", "croupier_lab.relay", f"{address}:{relay.PORT}", server)
    return Program(RELAY, command, paths_of(lab).mark)


def _missing_binaries(lab: Lab) -> str | None:
    absent = [name for name in pinned.REAL_NODE_PROGRAMS if name not in lab.record.binaries]
    return (
        f"Lab {lab.name} was started without {', '.join(absent)}, which a real node needs."
        if absent
        else None
    )


async def _start(lab: Lab, name: str, settings: Mapping[str, Any], started: list[LabProcess]) -> None:
    here = paths_of(lab)
    subnet = await _prepare(here)
    images = await image.pack_busybox(_busybox(), here.state / "images")

    keeper = mount_namespace.holder_program(NAMESPACE_HOLDER, here.binds, ready=here.ready, env=here.mark)
    started.append(process.start(keeper, lab.logs))
    within = await mount_namespace.wait_until_ready(started[-1], here.ready)

    _configure_containerd(lab, await containerd.snapshotter(here.state))
    started.append(process.start(_program(lab, CONTAINERD, within), lab.logs))
    await _until_serving(started[-1], here.socket)
    for packed in images:
        await _load(lab, within, packed.archive)

    started.append(process.start(_relay(lab, str(cni.gateway(subnet))), lab.logs))
    _configure_kubelet(lab, name, address=str(cni.gateway(subnet)), extra=settings)
    started.append(process.start(_program(lab, KUBELET, within), lab.logs))
    await _until_node_ready(lab, started[-1], name)


async def _prepare(here: RealNodePaths) -> cni.Network:
    _make_folders(here)
    cgroup.create(here.cgroup)
    subnet = await cni.create_bridge(here.id)
    (here.state / "network" / "10-croupier.conflist").write_text(cni.configuration(here.id, subnet))
    return subnet


def _make_folders(here: RealNodePaths) -> None:
    for folder in (here.state / "network", here.state / "kubelet", here.run):
        folder.mkdir(parents=True, exist_ok=True)
    here.plugins.symlink_to(here.state / "kubelet")
    for setting, value in kubelet.KERNEL_SETTINGS.items():
        file = here.state / "kernel" / setting
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
    mount_namespace.prepare({source: target for source, target in here.binds.items() if not source.is_file()})


def _configure_containerd(lab: Lab, snapshotter: str) -> None:
    here = paths_of(lab)
    text = containerd.configuration(
        root=here.state / "containerd",
        network=here.state / "network",
        shim=Path(lab.record.binaries["containerd-shim-runc-v2"]),
        plugins=cni.plugin_folders(),
        snapshotter=snapshotter,
    )
    here.arguments(CONTAINERD).write_text(
        json.dumps(["--config", str(_written(here, CONTAINERD_CONFIG, text))])
    )


def _configure_kubelet(lab: Lab, name: str, *, address: str, extra: Mapping[str, Any]) -> None:
    here, site = paths_of(lab), lab.site
    identity = certificates.node(name, hosts=(address, name))
    pair = certificates.issue(site.pki, identity, now=datetime.now(UTC))
    credentials = kubeconfig.write(
        here.state / "kubelet.kubeconfig",
        server=lab.server,
        name=f"croupier-{lab.name}",
        authority=site.authority,
        pair=pair,
    )
    servers = kubelet.nameservers(RESOLV_CONF.read_text()) if RESOLV_CONF.exists() else ()
    settings = kubelet.KubeletOptions(
        name, address, here.cgroup, site.authority, pair, nameservers=servers or (address,), extra=extra
    )
    file = _written(here, "kubelet.yaml", kubelet.configuration(settings))
    arguments = kubelet.arguments(settings, configuration_file=file, kubeconfig=credentials)
    here.arguments(KUBELET).write_text(json.dumps(arguments))


def _written(here: RealNodePaths, name: str, text: str) -> Path:
    (here.state / name).write_text(text)
    return here.state / name


def _program(lab: Lab, part: str, within: tuple[str, ...]) -> Program:
    """The configured component; read from disk, so that any process can restart it."""
    here = paths_of(lab)
    arguments: list[str] = json.loads(here.arguments(part).read_text())
    return Program(part, (*within, lab.record.binaries[part], *arguments), here.mark)


async def _until_serving(program: LabProcess, socket: Path) -> None:
    async for _ in _poll(program, "The container runtime did not start."):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_unix_connection(socket)
            writer.close()
            return


async def _until_node_ready(lab: Lab, program: LabProcess, name: str) -> None:
    condition = '{.status.conditions[?(@.type=="Ready")].status}'
    question = ("get", "node", name, "--ignore-not-found", "-o", f"jsonpath={condition}")
    async for _ in _poll(program, f"The node {name} did not become Ready."):
        with contextlib.suppress(LabError):  # retried until the deadline
            if await output(*lab.cluster.command(*question)) == "True":
                return


async def _poll(program: LabProcess, complaint: str) -> AsyncIterator[None]:
    """Yield repeatedly until the deadline, or until the program exits; then raise."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + READY_TIMEOUT
    while process.alive(program) and loop.time() < deadline:
        yield
        await asyncio.sleep(POLL)
    raise with_log(complaint, Path(program.log))


def remaining_processes(here: RealNodePaths) -> Iterator[psutil.Process]:
    """Processes of this node, identified by their environment."""
    for candidate in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if candidate.environ().get(ENV_VARIABLE) == str(here.lab):
                yield candidate


async def _kill_processes(here: RealNodePaths, only: tuple[str, ...] = ()) -> None:
    """Kill the processes of the node; their state is removed as well, so SIGKILL is enough."""
    deadline = asyncio.get_running_loop().time() + STOP_TIMEOUT
    while running := [child for child in remaining_processes(here) if not only or _named(child, only)]:
        for child in running:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        if asyncio.get_running_loop().time() > deadline:
            pid = running[0].pid
            raise LabError(f"Process {pid} of the real node does not end; see `ps {pid}`.")
        await asyncio.sleep(POLL)


def _named(candidate: psutil.Process, names: tuple[str, ...]) -> bool:
    with contextlib.suppress(psutil.Error):
        return candidate.name() in names
    return False
