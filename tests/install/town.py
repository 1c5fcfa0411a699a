"""The chart's processes on a lab without pods: their command lines, each under its own account.

What helm renders is applied, but for what would start pods: those start here, from the same arguments, with a
token of their ServiceAccount, and find on this machine's loopback what a pod would find in its own.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from croupier.lab import dealer, fleet, kubeconfig, nodes, ports, process
from croupier.lab.controlplane import API_SERVER, CONTROLLER_MANAGER, ETCD, KWOK, SCHEDULER
from croupier.lab.lab import Lab
from croupier.lab.lifecycle import Plan
from croupier.lab.process import Program
from croupier.lab.progress import Plain
from croupier.lab.testrun import TestRun
from tests.controllers.inventory_world import NODE_FEATURE_CRD
from tests.install import rendering

NAMESPACE = "d8-gpu-operator"
NODE = "gpu-1"
CARDS = "SIM-70GB:4"
QUIET = Plain(lambda _: None)
OPTIONS = (
    "--set=settings.capacityManager=CRD",
    "--set=settings.reservation.ttl=8s",
    f"--set=node.cards=simulated={CARDS}",
    "--set=bootstrap.gfdImage=gfd:1",
    "--set=bootstrap.dcgmExporterImage=dcgm:1",
)
STARTS_PODS = ("Deployment", "DaemonSet", "NetworkPolicy", "PodDisruptionBudget")
AUDIT = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:serviceaccounts:d8-gpu-operator"]}
- {level: None}
"""


@dataclass
class Town:
    lab: Lab
    folder: Path
    objects: list[dict[str, Any]]
    health: dict[str, int] = field(default_factory=dict)
    """By process: where its figures are."""
    ports: dict[str, int] = field(default_factory=dict)
    shown: dict[str, list[Any]] = field(default_factory=dict)
    """By expression: what Prometheus answered in the evening."""

    @property
    def audit(self) -> Path:
        return self.folder / "audit.log"

    @property
    def faults(self) -> Path:
        return self.folder / "faults.yaml"

    def account(self, name: str, node: str = "") -> Path:
        """A kubeconfig with the account's token; an agent's is bound to its node, as that of its pod is."""
        bound = ("--bound-object-kind=Node", f"--bound-object-name={node}") if node else ()
        token = self.lab.kubectl("create", "token", name, "-n", NAMESPACE, *bound).stdout.strip()
        path = self.folder / f"{name}{node}.kubeconfig"
        return kubeconfig.with_token(path, self.lab.kubeconfig, user=name, token=token)

    def container(self, process: str, name: str | None = None) -> dict[str, Any]:
        containers = rendering.pods(self.objects)[process]["spec"]["containers"]
        return next(one for one in containers if name in (None, one["name"]))

    def start(self, name: str, *more: str, node: str = "") -> None:
        """A Deployment or DaemonSet. What is in `more` has the last word, and may name its {listen} port."""
        health, listen = ports.free(2, chance=random.Random())  # noqa: S311  # ports, no secrets
        self.health[name], self.ports[name] = health, listen
        known = {
            "--settings=/etc/croupier": f"--settings={self.folder}",
            "--state=/var/lib/croupier": f"--state={self.folder}",
            "--kubelet=/var/lib/kubelet": f"--kubelet={self.folder}/kubelet",
        }
        served = {"--health": health, "--listen": listen}
        words = [_here(word, served, known) for word in self.container(name)["args"]]
        options = (one.replace("{listen}", str(listen)) for one in more)
        speaking = f"--kubeconfig={self.account(name, node)}"
        env = {"NODE_NAME": node} if node else {}
        program = Program(name, (*dealer.PROGRAM, *words, speaking, *options), env)
        self.lab.adopt(process.start(program, self.lab.logs))

    def start_scheduler(self) -> None:
        """The second scheduler of the chart, in the extender's pod and under its account."""
        (port,) = ports.free(1, chance=random.Random())  # noqa: S311  # a port, no secret
        (written,) = (
            one["data"]["scheduler.yaml"]
            for one in rendering.of_kind(self.objects, "ConfigMap")
            if "scheduler.yaml" in one["data"]
        )
        settings = yaml.safe_load(written.replace(":9440", f":{self.ports['croupier-extender']}"))
        settings["clientConnection"]["kubeconfig"] = str(self.account("croupier-extender"))
        file = self.folder / "scheduler.yaml"
        file.write_text(yaml.safe_dump(settings))
        pair = self.lab.site.pair(SCHEDULER)
        argv = (
            self.lab.site.binaries[SCHEDULER],
            f"--config={file}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "--authentication-skip-lookup=true",
            f"--tls-cert-file={pair.certificate}",
            f"--tls-private-key-file={pair.key}",
        )
        self.lab.adopt(process.start(Program("second-scheduler", argv), self.lab.logs))

    def listen_by_url(self) -> None:
        """There is no network of pods here: the API server asks the webhook where it really is."""
        port = self.ports["gpu-admission-webhook"]
        for one in rendering.of_kind(
            self.objects, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
        ):
            steps = [
                {
                    "op": "replace",
                    "path": f"/webhooks/{at}/clientConfig",
                    "value": {"url": f"https://127.0.0.1:{port}{hook['clientConfig']['service']['path']}"},
                }
                for at, hook in enumerate(one["webhooks"])
            ]
            name = one["metadata"]["name"]
            self.lab.kubectl("patch", one["kind"], name, "--type=json", f"-p={yaml.safe_dump(steps)}")

    def log(self, name: str) -> str:
        return Path(self.lab.process(name).log).read_text()

    async def ready(self, names: Sequence[str]) -> None:
        await dealer.answer(self.lab, {name: self.health[name] for name in names})

    async def rest(self) -> None:
        """Whoever works here stops; the control plane stays."""
        mine = [one for one in self.lab.record.processes if one.name in (*self.health, "second-scheduler")]
        await asyncio.gather(*(process.stop(one) for one in mine))


@contextlib.asynccontextmanager
async def raised(run: TestRun, folder: Path) -> AsyncIterator[Town]:
    """A control plane that writes down who asks for what, with the chart and one node with cards."""
    (folder / "policy.yaml").write_text(AUDIT)
    flags = (f"--audit-policy-file={folder / 'policy.yaml'}", f"--audit-log-path={folder / 'audit.log'}")
    parts = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
    lab = await run.private(Plan(parts=parts, extra={API_SERVER: flags}))
    town = Town(lab, folder, await asyncio.to_thread(rendering.objects, *OPTIONS))
    lab.kubectl("create", "namespace", NAMESPACE)
    lab.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all([NODE_FEATURE_CRD]))
    await asyncio.to_thread(_apply, town)
    await fleet.create(lab, nodes.fleet(0, cards=None, named=[f"{NODE}={CARDS}"]), QUIET)
    (folder / "kubelet/device-plugins").mkdir(parents=True)
    (folder / "kubelet/pod-resources").mkdir()
    yield town


def _here(word: str, served: Mapping[str, int], known: Mapping[str, str]) -> str:
    """An argument of a container, as it must be outside of one."""
    option = word.partition("=")[0]
    if option in served:
        return f"{option}=127.0.0.1:{served[option]}"
    old = next((one for one in known if word.startswith(one)), "")
    return known.get(old, "") + word.removeprefix(old)


def _apply(town: Town) -> None:
    kept: list[Mapping[str, Any]] = [one for one in town.objects if one["kind"] not in STARTS_PODS]
    crds = [one for one in kept if one["kind"] == "CustomResourceDefinition"]
    town.lab.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(crds))
    town.lab.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    others = [one for one in kept if one not in crds]
    town.lab.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(others))
    for one in rendering.of_kind(town.objects, "ConfigMap"):
        for name, text in one["data"].items():
            (town.folder / name).write_text(text)
