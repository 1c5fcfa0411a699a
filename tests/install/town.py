"""The chart's processes on a lab without pods: their command lines, each under its own account.

What helm renders is applied, but for what would start pods: those start here, from the same arguments, with a
token of their ServiceAccount, and find on this machine's loopback what a pod would find in its own. The town
becomes another one as an installation does: what helm renders now is applied, what it does not is deleted.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
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
COUNT = 5
CARDS = f"SIM-70GB:{COUNT}"
QUIET = Plain(lambda _: None)
WEBHOOK = "gpu-admission-webhook"
EXTENDER = "croupier-extender"
PLACER = "second-scheduler"
OPTIONS = (
    "--set=settings.reservation.ttl=6s",
    f"--set=node.cards=simulated={CARDS}",
    "--set=bootstrap.gfdImage=gfd:1",
    "--set=bootstrap.dcgmExporterImage=dcgm:1",
)
STARTS_PODS = ("Deployment", "DaemonSet", "NetworkPolicy", "PodDisruptionBudget", "Certificate", "Issuer")
"""Those of cert-manager are here, too: there is none in town, it is played."""
AUDIT = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:serviceaccounts:d8-gpu-operator"]}
- {level: None}
"""

Object = dict[str, Any]
MODULE_CONFIG_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "moduleconfigs.deckhouse.io"},
    "spec": {
        "group": "deckhouse.io",
        "names": {"kind": "ModuleConfig", "plural": "moduleconfigs", "singular": "moduleconfig"},
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "enabled": {"type": "boolean"},
                                    "version": {"type": "number"},
                                    "settings": {
                                        "type": "object",
                                        "x-kubernetes-preserve-unknown-fields": True,
                                    },
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
"""As Deckhouse has it, as far as we read it."""


@dataclass(frozen=True)
class Part:
    """Of the day: what was installed then, and where its page of the audit log begins."""

    name: str
    objects: list[Object]
    since: int


@dataclass
class Town:
    lab: Lab
    folder: Path
    gate: int
    """Where the API server finds the webhook."""
    parts: list[Part] = field(default_factory=list)
    health: dict[str, int] = field(default_factory=dict)
    """By process: where its figures are."""
    ports: dict[str, int] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    """By process: where in its log it began."""
    shown: dict[str, list[Any]] = field(default_factory=dict)
    """By expression: what Prometheus answered in the evening."""
    told: dict[str, Any] = field(default_factory=dict)
    """What was seen in the day, for those who judge it afterwards."""
    ended: int = 0
    """Where the audit log of the day ends: what is tried afterwards is not part of it."""

    @property
    def audit(self) -> Path:
        return self.folder / "audit.log"

    @property
    def faults(self) -> Path:
        return self.folder / "faults.yaml"

    @property
    def objects(self) -> list[Object]:
        return self.parts[-1].objects

    def page(self, part: Part) -> str:
        """The audit log of one part of the day."""
        later = [one.since for one in self.parts if one.since > part.since]
        until = min(later, default=self.ended)
        return self.audit.read_bytes()[part.since : until].decode()

    async def become(self, name: str, *options: str) -> None:
        """What `helm upgrade` with these options would leave, but for pods."""
        wanted = await asyncio.to_thread(rendering.objects, *OPTIONS, *options)
        before = self.parts[-1].objects if self.parts else []
        self.parts.append(Part(name, wanted, self.audit.stat().st_size if self.audit.exists() else 0))
        await asyncio.to_thread(self._apply, before)

    def _apply(self, before: list[Object]) -> None:
        kept = [self._by_url(one) for one in self.objects if one["kind"] not in STARTS_PODS]
        crds = [one for one in kept if one["kind"] == "CustomResourceDefinition"]
        if not before:
            self._send(crds)
            self.lab.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        self._send(one for one in kept if one not in crds)
        gone = {_identity(one): one for one in before if one["kind"] not in STARTS_PODS}
        for known in map(_identity, self.objects):
            gone.pop(known, None)
        if gone:
            self.lab.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(gone.values()))
        for one in rendering.of_kind(self.objects, "ConfigMap"):
            for name, text in one["data"].items():
                (self.folder / name).write_text(text)

    def _send(self, objects: Iterable[Object]) -> None:
        """Whoever edited one meanwhile: what is rendered counts, as it does for Helm."""
        text = yaml.safe_dump_all(objects)
        self.lab.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def _by_url(self, one: Object) -> Object:
        """There is no network of pods here: the API server asks the webhook where it really is."""
        if not one["kind"].endswith("WebhookConfiguration"):
            return one
        hooks = [
            {
                **hook,
                "clientConfig": {
                    "url": f"https://127.0.0.1:{self.gate}{hook['clientConfig']['service']['path']}"
                },
            }
            for hook in one["webhooks"]
        ]
        return {**one, "webhooks": hooks}

    def account(self, name: str, node: str = "") -> Path:
        """A kubeconfig with the account's token; an agent's is bound to its node, as that of its pod is."""
        path = self.folder / f"{name}{node}.kubeconfig"
        if not path.exists():
            bound = ("--bound-object-kind=Node", f"--bound-object-name={node}") if node else ()
            token = self.lab.kubectl("create", "token", name, "-n", NAMESPACE, *bound).stdout.strip()
            kubeconfig.with_token(path, self.lab.kubeconfig, user=name, token=token)
        return path

    def container(self, process: str) -> dict[str, Any]:
        found: dict[str, Any] = rendering.pods(self.objects)[process]["spec"]["containers"][0]
        return found

    def replicas(self, name: str) -> int:
        found: int = rendering.named(self.objects, "Deployment", name)["spec"]["replicas"]
        return found

    def start(self, name: str, *more: str, node: str = "", replica: int = 1) -> None:
        """A pod of a Deployment or DaemonSet. What is in `more` has the last word."""
        health, listen = ports.free(2, chance=random.Random())  # noqa: S311  # ports, no secrets
        called = named(name, replica)
        self.health[called] = health
        self.ports[called] = self.gate if called == WEBHOOK else listen
        known = {
            "--state=/var/lib/croupier": f"--state={self.folder}",
            "--kubelet=/var/lib/kubelet": f"--kubelet={self.folder}/kubelet",
            "--cdi=/var/run/cdi": f"--cdi={self.folder}/cdi",
            "--tls-dir=/tls": f"--tls-dir={self.folder}/tls",
        }
        served = {"--health": health, "--listen": self.ports[called]}
        words = [_here(word, served, known) for word in self.container(name)["args"]]
        speaking = f"--kubeconfig={self.account(name, node)}"
        env = {"NODE_NAME": node} if node else {}
        program = Program(called, (*dealer.PROGRAM, *words, speaking, *more), env)
        log = self.lab.logs / f"{called}.log"
        self.begun[called] = log.stat().st_size if log.exists() else 0
        self.lab.adopt(process.start(program, self.lab.logs))

    def start_scheduler(self, replica: int = 1) -> None:
        """The second scheduler of the chart, in the extender's pod and under its account."""
        (port,) = ports.free(1, chance=random.Random())  # noqa: S311  # a port, no secret
        (written,) = (
            one["data"]["scheduler.yaml"]
            for one in rendering.of_kind(self.objects, "ConfigMap")
            if "scheduler.yaml" in one["data"]
        )
        settings = yaml.safe_load(written.replace(":9440", f":{self.ports[named(EXTENDER, replica)]}"))
        settings["clientConnection"]["kubeconfig"] = str(self.account(EXTENDER))
        file = self.folder / f"{named(PLACER, replica)}.yaml"
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
        self.lab.adopt(process.start(Program(named(PLACER, replica), argv), self.lab.logs))

    def log(self, name: str) -> str:
        """Since it was last started."""
        return Path(self.lab.process(name).log).read_bytes()[self.begun[name] :].decode()

    async def ready(self, names: Sequence[str] = ()) -> None:
        await dealer.answer(self.lab, {name: self.health[name] for name in names or self.health})

    async def rest(self) -> None:
        """Whoever works here stops; the control plane stays."""
        schedulers = (named(PLACER, 1), named(PLACER, 2))
        mine = [one for one in self.lab.record.processes if one.name in (*self.health, *schedulers)]
        await asyncio.gather(*(process.stop(one) for one in mine))
        self.health.clear()
        self.ended = self.audit.stat().st_size


def named(name: str, replica: int) -> str:
    return name if replica == 1 else f"{name}-{replica}"


@contextlib.asynccontextmanager
async def raised(run: TestRun, folder: Path, discovery: Sequence[Object]) -> AsyncIterator[Town]:
    """A control plane that writes down who asks for what, with the chart and one node with cards.

    `discovery` are the kinds of Node Feature Discovery; without them the one that we read is made up.
    """
    (folder / "policy.yaml").write_text(AUDIT)
    flags = (f"--audit-policy-file={folder / 'policy.yaml'}", f"--audit-log-path={folder / 'audit.log'}")
    parts = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
    lab = await run.private(Plan(parts=parts, extra={API_SERVER: flags}))
    (gate,) = ports.free(1, chance=random.Random())  # noqa: S311  # a port, no secret
    town = Town(lab, folder, gate)
    lab.kubectl("create", "namespace", NAMESPACE)
    foreign = [*(discovery or [NODE_FEATURE_CRD]), MODULE_CONFIG_CRD]
    lab.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(foreign))
    await town.become("in memory", *([rendering.NODE_FEATURE_RULES] if discovery else []))
    await fleet.create(lab, nodes.fleet(0, cards=None, named=[f"{NODE}={CARDS}"]), QUIET)
    for place in ("kubelet/device-plugins", "kubelet/pod-resources", "cdi", "tls"):
        (folder / place).mkdir(parents=True)
    yield town


def _identity(one: Object) -> tuple[str, str, str]:
    meta = one["metadata"]
    return one["kind"], meta.get("namespace", ""), meta["name"]


def _here(word: str, served: Mapping[str, int], known: Mapping[str, str]) -> str:
    """An argument of a container, as it must be outside of one."""
    option = word.partition("=")[0]
    if option in served:
        return f"{option}=127.0.0.1:{served[option]}"
    old = next((one for one in known if word.startswith(one)), "")
    return known.get(old, "") + word.removeprefix(old)
