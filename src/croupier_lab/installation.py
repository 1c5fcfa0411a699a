"""Install the chart of Croupier into a lab with a real node.

A lab has no DNS and no kube-proxy, so the pods get the API server by hostAliases; it has no registry, so the
images are loaded first. The chart values of a lab contain this, the simulated cards and the node selector.
"""

import asyncio
import json
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from croupier.api.meta import PART_OF_SELECTOR
from croupier_lab import (
    agents,
    croupier_processes,
    image,
    own_image,
    pinned,
    process,
    provisioning,
    realnode,
    record,
    relay,
    user_dirs,
)
from croupier_lab.binaries import BinarySources
from croupier_lab.command import output
from croupier_lab.controlplane import SCHEDULER
from croupier_lab.errors import LabError
from croupier_lab.image import ImageConfig
from croupier_lab.lab import Lab
from croupier_lab.progress import ProgressReporter
from croupier_lab.record import LabState

NAMESPACE: Final = croupier_processes.NAMESPACE
RELEASE: Final = "croupier"
CHART: Final = own_image.CHECKOUT / "charts" / "croupier"
SERVER: Final = "kubernetes.default.svc"
"""A host name in the certificate of the lab's API server."""
UPSTREAM: Final = "croupier.lab/kube-scheduler"
CARDS: Final = "SIM-70GB:4"
HELM_TIMEOUT: Final = "8m"
"""Timeout of helm; a dozen processes start at the same time on a small machine."""
POLL: Final = 3.0
HOSTNAME: Final = "kubernetes.io/hostname"
AGENTS: Final = ("croupier-node", "croupier-market")
PROCESS_NAMES: Final = (
    croupier_processes.EXTENDER,
    croupier_processes.MANAGER,
    croupier_processes.WEBHOOK,
    agents.NODE,
    agents.FLEET,
)
UNFINISHED: Final = "owner=helm,name={release},status in (pending-install,pending-upgrade,pending-rollback)"
# Small requests, because a lab shares its machine.
SMALL_RESOURCES: Final = {"requests": {"cpu": "20m", "memory": "64Mi"}}
FAST_MARKET: Final = {"raiseAfter": 2, "lowerAfter": 5, "keepPeaks": 5, "keepLatencyPeaks": 5}
"""Short intervals, so that limits change within a minute."""


@dataclass(frozen=True, slots=True)
class InstallOptions:
    """Options of the installation; `values` and `sets` override the values of the lab."""

    cards: str = CARDS
    values: tuple[Path, ...] = ()
    sets: tuple[str, ...] = ()


def obstacle(lab: Lab) -> str | None:
    """Why Croupier cannot be installed into this lab, with advice; None if it can."""
    if record.state(lab.record) is not LabState.RUNNING:
        return f"Lab {lab.name} is not running: start it as root with `{_up_command(lab)}`."
    if lab.record.real_node is None:
        return f"Lab {lab.name} has no real node: run `{_up_command(lab)}` as root to join this machine."
    recorded = [part for part in lab.record.processes if part.name in PROCESS_NAMES]
    running = [part.name for part in recorded if process.alive(part)]
    if running:
        return (
            f"Lab {lab.name} already runs {', '.join(running)} as processes, which would allocate the same "
            f"cards: run `croupier lab down{_name_option(lab)}`, "
            f"then `{_up_command(lab)}` without --croupier, "
            "--cards and --agents."
        )
    return own_image.obstacle()


async def existing_installation(lab: Lab) -> str | None:
    """Why Croupier must not run as processes in this lab, with advice; None if it may."""
    selection = ("-n", NAMESPACE, "-l", PART_OF_SELECTOR, "-o", "name")
    if not (await output(*lab.cluster.command("get", "deployments,daemonsets", *selection))).strip():
        return None
    return (
        f"Lab {lab.name} has the chart of Croupier installed, and processes would allocate the same cards: "
        f"run `helm uninstall {RELEASE} -n {NAMESPACE}` first, or omit --croupier, --cards and --agents."
    )


def _up_command(lab: Lab) -> str:
    return f"croupier lab up --real-node --detach{_name_option(lab)}"


def _name_option(lab: Lab) -> str:
    return "" if lab.name == user_dirs.DEFAULT_NAME else f" --name {lab.name}"


async def prepare(lab: Lab, wish: InstallOptions, show: ProgressReporter) -> dict[str, Any]:
    """Load the images; returns the chart values of this lab."""
    if reason := obstacle(lab):
        raise LabError(reason)
    built = await own_image.cached(user_dirs.cache(), show)
    loaded = (await realnode.images(lab)).split()
    if built.tag not in loaded:
        show.step(f"Loading {built.tag} into the real node")
        await realnode.load(lab, built.archive)
    upstream = f"{UPSTREAM}:{await _version(lab)}"
    if upstream not in loaded:
        show.step(f"Loading {upstream} into the real node")
        await _load_scheduler(lab, upstream)
    return await _values(lab, built.repository, wish.cards)


async def _version(lab: Lab) -> str:
    versions: dict[str, Any] = json.loads(await output(*lab.cluster.command("version", "-o", "json")))
    return str(versions["serverVersion"]["gitVersion"])


async def _load_scheduler(lab: Lab, tag: str) -> None:
    """Load the lab's kube-scheduler as an image."""
    with tempfile.TemporaryDirectory(dir=lab.folder) as folder:
        root, archive = Path(folder, "root"), Path(folder, "image.tar")
        (root / "usr/local/bin").mkdir(parents=True)
        shutil.copy(lab.record.binaries[SCHEDULER], root / "usr/local/bin" / SCHEDULER)
        running = ImageConfig(user="65532:65532")
        await asyncio.to_thread(image.pack, root, archive, tag=tag, running=running)
        await realnode.load(lab, archive)


async def _values(lab: Lab, repository: str, cards: str) -> dict[str, Any]:
    node = json.loads(await output(*lab.cluster.command("get", "node", realnode.NAME, "-o", "json")))
    addresses = node["status"]["addresses"]
    (address,) = (entry["address"] for entry in addresses if entry["type"] == "InternalIP")
    here = {HOSTNAME: node["metadata"]["labels"][HOSTNAME]}  # simulated nodes do not run containers
    return {
        "image": {"repository": repository, "pullPolicy": "Never"},
        "scheduler": {"image": {"repository": UPSTREAM}},
        "apiServer": {"host": SERVER, "port": relay.PORT},
        "hostAliases": [{"ip": address, "hostnames": [SERVER]}],
        "nodeSelector": here,
        "node": {
            "cards": f"simulated={cards}",
            "stateDir": str(agents.folder(lab)),  # removed with the lab
            "nodeSelector": here,
        },
        "market": {"cgroupRoot": f"/{realnode.paths_of(lab).cgroup}", "nodeSelector": here, **FAST_MARKET},
        "resources": {"default": SMALL_RESOURCES, "node": SMALL_RESOURCES, "market": SMALL_RESOURCES},
        "settings": {"highAvailability": False},  # one replica of each process is enough here
    }


def helm_arguments(lab: Lab, wish: InstallOptions, file: Path) -> tuple[str, ...]:
    """Arguments of helm that install the chart with the values of this lab in `file`."""
    return (
        *("upgrade", "--install", RELEASE, str(CHART)),
        *(f"--namespace={NAMESPACE}", "--create-namespace", f"--kubeconfig={lab.kubeconfig}"),
        *(f"--values={path}" for path in (file, *wish.values)),
        *(f"--set={assignment}" for assignment in wish.sets),
    )


def values_file(lab: Lab, wish: InstallOptions, values: dict[str, Any]) -> str:
    """The values file, with the helm command as a comment."""
    line = shlex.join(("helm", *helm_arguments(lab, wish, Path("FILE"))))
    return f"# {line}\n{yaml.safe_dump(values, sort_keys=False)}"


async def install(lab: Lab, wish: InstallOptions, sources: BinarySources, show: ProgressReporter) -> int:
    """Install or upgrade the chart; returns the number of ready pods."""
    if reason := obstacle(lab):
        raise LabError(reason)
    helm = (await provisioning.ensure(pinned.HELM_PROGRAMS, sources, show)).binaries["helm"]
    values = await prepare(lab, wish, show)
    file = lab.folder / "values.yaml"
    file.write_text(values_file(lab, wish, values))
    await _delete_pending_releases(lab)
    show.step(f"Installing the chart into {NAMESPACE}")
    await _run(
        lab, (str(helm), *helm_arguments(lab, wish, file), "--wait", f"--timeout={HELM_TIMEOUT}"), show
    )
    for agent in AGENTS:  # helm accepts missing pods of a DaemonSet
        await _wait_for_rollout(lab, agent)
    return len(await _pods(lab))


async def _delete_pending_releases(lab: Lab) -> None:
    """Delete the records of interrupted helm operations, which would block the next one."""
    unfinished = UNFINISHED.format(release=RELEASE)
    forget = ("delete", "secret", "-n", NAMESPACE, "-l", unfinished, "--ignore-not-found")
    await output(*lab.cluster.command(*forget))


async def _run(lab: Lab, command: Sequence[str], show: ProgressReporter) -> None:
    """Run helm and report how many pods are ready while it waits."""
    installing = asyncio.ensure_future(output(*command))
    try:
        while not (await asyncio.wait({installing}, timeout=POLL))[0]:
            pods = await _pods(lab)
            show.advance("Waiting for pods", sum(map(_is_ready, pods)), len(pods))
        await installing
    except LabError as failure:
        raise LabError(f"{failure}\n{await _diagnostics(lab)}") from failure
    finally:
        installing.cancel()
        show.settle()


async def _wait_for_rollout(lab: Lab, agent: str) -> None:
    there = ("get", "daemonset", agent, "-n", NAMESPACE, "--ignore-not-found", "-o", "name")
    if await output(*lab.cluster.command(*there)):  # it can be disabled
        status = ("rollout", "status", f"daemonset/{agent}", "-n", NAMESPACE, f"--timeout={HELM_TIMEOUT}")
        await output(*lab.cluster.command(*status))


async def _pods(lab: Lab) -> list[dict[str, Any]]:
    """The pods of processes; that of `helm test` has ended."""
    running = "--field-selector=status.phase!=Succeeded,status.phase!=Failed"
    listed = await output(*lab.cluster.command("get", "pods", "-n", NAMESPACE, running, "-o", "json"))
    pods: list[dict[str, Any]] = json.loads(listed)["items"]
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


async def _diagnostics(lab: Lab) -> str:
    """Pods and warning Events, for the error message."""
    pods = await output(*lab.cluster.command("get", "pods", "-n", NAMESPACE))
    events = await output(*lab.cluster.command("events", "-n", NAMESPACE, "--types=Warning"))
    return f"{pods}\n{events[-3000:]}"
