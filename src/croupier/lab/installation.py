"""Croupier installed into a lab as into any cluster: by its chart, as pods of the real node.

A lab has neither DNS nor kube-proxy, so pods find the API server by a name in their hosts file; and no
registry, so images are loaded first. This, the simulated cards and where pods may run is all that the chart
is told of a lab: a file of values, which anybody may give to helm himself.
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

from croupier.api.meta import OURS
from croupier.lab import (
    agents,
    dealer,
    image,
    own_image,
    pinned,
    places,
    process,
    realnode,
    record,
    relay,
    supplies,
)
from croupier.lab.binaries import Sources
from croupier.lab.command import output
from croupier.lab.controlplane import SCHEDULER
from croupier.lab.errors import LabError
from croupier.lab.image import Running
from croupier.lab.lab import Lab
from croupier.lab.progress import Progress
from croupier.lab.record import State

NAMESPACE: Final = dealer.NAMESPACE
RELEASE: Final = "croupier"
CHART: Final = own_image.CHECKOUT / "charts" / "croupier"
SERVER: Final = "kubernetes.default.svc"
"""A name in the certificate of the lab's API server."""
UPSTREAM: Final = "croupier.lab/kube-scheduler"
CARDS: Final = "SIM-70GB:4"
WITHIN: Final = "8m"
"""How long helm waits: a dozen processes start at once, on a machine that may have two busy cores."""
LOOK_EVERY: Final = 3.0
HOSTNAME: Final = "kubernetes.io/hostname"
AGENTS: Final = ("croupier-node", "croupier-market")
AS_PROCESSES: Final = (dealer.EXTENDER, dealer.MANAGER, dealer.WEBHOOK, agents.NODE, agents.FLEET)
UNFINISHED: Final = "owner=helm,name={release},status in (pending-install,pending-upgrade,pending-rollback)"
# What a lab asks of its machine is little; the chart's requests are for clusters that matter.
MODEST: Final = {"requests": {"cpu": "20m", "memory": "64Mi"}}
BRISK: Final = {"raiseAfter": 2, "lowerAfter": 5, "keepPeaks": 5, "keepLatencyPeaks": 5}
"""So that whoever looks at the market of a lab sees a limit fall, too, within a minute."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person may choose; `values` and `sets` are for helm, over those of the lab."""

    cards: str = CARDS
    values: tuple[Path, ...] = ()
    sets: tuple[str, ...] = ()


def refusal(lab: Lab) -> str | None:
    """Why nothing can be installed into this lab, with what to do; None if it can."""
    if record.state(lab.record) is not State.RUNNING:
        return f"Lab {lab.name} does not run: raise it as root with `{_raising(lab)}`."
    if lab.record.real_node is None:
        return f"Lab {lab.name} has no real node to run pods: as root, `{_raising(lab)}` joins this machine."
    running = [one.name for one in lab.record.processes if one.name in AS_PROCESSES and process.alive(one)]
    if running:
        return (
            f"Lab {lab.name} runs {', '.join(running)} as processes, and an installation beside them would "
            f"deal the same cards: `croupier lab down{_named(lab)}`, then `{_raising(lab)}` without "
            "--croupier, --cards and --agents."
        )
    return own_image.obstacle()


async def conflict(lab: Lab) -> str | None:
    """Why no process of ours may deal the cards of this lab, with what to do; None if it may."""
    ours = ("-n", NAMESPACE, "-l", OURS, "-o", "name")
    if not (await output(*lab.cluster.command("get", "deployments,daemonsets", *ours))).strip():
        return None
    return (
        f"Lab {lab.name} has Croupier installed, and processes beside it would deal the same cards: "
        f"`helm uninstall {RELEASE} -n {NAMESPACE}` first, or leave out --croupier, --cards and --agents."
    )


def _raising(lab: Lab) -> str:
    return f"croupier lab up --real-node --detach{_named(lab)}"


def _named(lab: Lab) -> str:
    return "" if lab.name == places.DEFAULT_NAME else f" --name {lab.name}"


async def prepare(lab: Lab, wish: Wish, show: Progress) -> dict[str, Any]:
    """Load the images that pods will need; returns what the chart must be told of this lab."""
    if reason := refusal(lab):
        raise LabError(reason)
    ours = await own_image.kept(places.cache(), show)
    there = (await realnode.images(lab)).split()
    if ours.tag not in there:
        show.step(f"Loading {ours.tag} into the real node")
        await realnode.load(lab, ours.archive)
    upstream = f"{UPSTREAM}:{await _version(lab)}"
    if upstream not in there:
        show.step(f"Loading {upstream} into the real node")
        await _load_scheduler(lab, upstream)
    return await _values(lab, ours.repository, wish.cards)


async def _version(lab: Lab) -> str:
    told: dict[str, Any] = json.loads(await output(*lab.cluster.command("version", "-o", "json")))
    return str(told["serverVersion"]["gitVersion"])


async def _load_scheduler(lab: Lab, tag: str) -> None:
    """The lab's own kube-scheduler, as an image."""
    with tempfile.TemporaryDirectory(dir=lab.folder) as folder:
        root, archive = Path(folder, "root"), Path(folder, "image.tar")
        (root / "usr/local/bin").mkdir(parents=True)
        shutil.copy(lab.record.binaries[SCHEDULER], root / "usr/local/bin" / SCHEDULER)
        running = Running(user="65532:65532")
        await asyncio.to_thread(image.pack, root, archive, tag=tag, running=running)
        await realnode.load(lab, archive)


async def _values(lab: Lab, repository: str, cards: str) -> dict[str, Any]:
    node = json.loads(await output(*lab.cluster.command("get", "node", realnode.NAME, "-o", "json")))
    (address,) = (one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP")
    here = {HOSTNAME: node["metadata"]["labels"][HOSTNAME]}  # simulated nodes would only seem to run us
    return {
        "image": {"repository": repository, "pullPolicy": "Never"},
        "scheduler": {"image": {"repository": UPSTREAM}},
        "apiServer": {"host": SERVER, "port": relay.PORT},
        "hostAliases": [{"ip": address, "hostnames": [SERVER]}],
        "nodeSelector": here,
        "node": {
            "cards": f"simulated={cards}",
            "stateDir": str(agents.folder(lab)),  # goes with the lab
            "nodeSelector": here,
        },
        "market": {"cgroupRoot": f"/{realnode.ground(lab).cgroup}", "nodeSelector": here, **BRISK},
        "resources": {"default": MODEST, "node": MODEST, "market": MODEST},
        "settings": {"highAvailability": False},  # by itself it begins with the third node, simulated or not
    }


def typed(lab: Lab, wish: Wish, file: Path) -> tuple[str, ...]:
    """The words after `helm` that install the chart, with the values of this lab in `file`."""
    return (
        *("upgrade", "--install", RELEASE, str(CHART)),
        *(f"--namespace={NAMESPACE}", "--create-namespace", f"--kubeconfig={lab.kubeconfig}"),
        *(f"--values={one}" for one in (file, *wish.values)),
        *(f"--set={one}" for one in wish.sets),
    )


def printed(lab: Lab, wish: Wish, values: dict[str, Any]) -> str:
    """The values as a file that says what to do with it."""
    line = shlex.join(("helm", *typed(lab, wish, Path("FILE"))))
    return f"# {line}\n{yaml.safe_dump(values, sort_keys=False)}"


async def install(lab: Lab, wish: Wish, sources: Sources, show: Progress) -> int:
    """Install, or change what is installed into what is wished; how many pods are ready in the end."""
    if reason := refusal(lab):
        raise LabError(reason)
    helm = (await supplies.ensure(pinned.INSTALLING, sources, show)).binaries["helm"]
    values = await prepare(lab, wish, show)
    file = lab.folder / "values.yaml"
    file.write_text(printed(lab, wish, values))
    await _forget_unfinished(lab)
    show.step(f"Installing the chart into {NAMESPACE}")
    await _run(lab, (str(helm), *typed(lab, wish, file), "--wait", f"--timeout={WITHIN}"), show)
    for agent in AGENTS:  # helm lets a tenth of a DaemonSet be missing, which may be all of it
        await _rolled_out(lab, agent)
    return len(await _pods(lab))


async def _forget_unfinished(lab: Lab) -> None:
    """What was interrupted would keep helm from ever beginning again; what it made is taken over."""
    unfinished = UNFINISHED.format(release=RELEASE)
    forget = ("delete", "secret", "-n", NAMESPACE, "-l", unfinished, "--ignore-not-found")
    await output(*lab.cluster.command(*forget))


async def _run(lab: Lab, command: Sequence[str], show: Progress) -> None:
    """Helm says nothing while it waits, so somebody looks at the pods meanwhile."""
    installing = asyncio.ensure_future(output(*command))
    try:
        while not (await asyncio.wait({installing}, timeout=LOOK_EVERY))[0]:
            pods = await _pods(lab)
            show.advance("Waiting for pods", sum(map(_is_ready, pods)), len(pods))
        await installing
    except LabError as failure:
        raise LabError(f"{failure}\n{await _trouble(lab)}") from failure
    finally:
        installing.cancel()
        show.settle()


async def _rolled_out(lab: Lab, agent: str) -> None:
    there = ("get", "daemonset", agent, "-n", NAMESPACE, "--ignore-not-found", "-o", "name")
    if await output(*lab.cluster.command(*there)):  # a wish may do without it
        status = ("rollout", "status", f"daemonset/{agent}", "-n", NAMESPACE, f"--timeout={WITHIN}")
        await output(*lab.cluster.command(*status))


async def _pods(lab: Lab) -> list[dict[str, Any]]:
    told = await output(*lab.cluster.command("get", "pods", "-n", NAMESPACE, "-o", "json"))
    found: list[dict[str, Any]] = json.loads(told)["items"]
    return [one for one in found if "deletionTimestamp" not in one["metadata"]]


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


async def _trouble(lab: Lab) -> str:
    """What a person would look at next."""
    pods = await output(*lab.cluster.command("get", "pods", "-n", NAMESPACE))
    events = await output(*lab.cluster.command("events", "-n", NAMESPACE, "--types=Warning"))
    return f"{pods}\n{events[-3000:]}"
