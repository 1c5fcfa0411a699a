"""Runs the processes of the chart on a lab without pods, each under its own ServiceAccount.

The rendered objects are applied except those that create pods. The processes are started, as forks
(tests/forks.py), with the arguments of their containers and a token of their ServiceAccount, and use loopback
instead of the pod network. An upgrade applies the newly rendered objects and deletes those that are no longer
rendered.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from croupier_lab import croupier_processes, fleet, kubeconfig, nodes, ports, process
from croupier_lab.controlplane import API_SERVER, CONTROLLER_MANAGER, ETCD, KWOK, SCHEDULER
from croupier_lab.lab import Lab
from croupier_lab.lifecycle import LabPlan
from croupier_lab.process import LabProcess, Program
from croupier_lab.progress import LogProgress
from croupier_lab.testrun import TestRun
from tests import forks
from tests.controllers.inventory_env import NODE_FEATURE_CRD
from tests.install import rendering

NAMESPACE = "gpu-sharing"
"""Not the default namespace, which tests/install/test_installation.py uses."""
NODE = "gpu-1"
COUNT = 5
CARDS = f"SIM-70GB:{COUNT}"
QUIET = LogProgress(lambda _: None)
WEBHOOK = "gpu-admission-webhook"
EXTENDER = "croupier-extender"
LEDGER = "croupier-ledger"
SECOND_SCHEDULER = "second-scheduler"
OPTIONS = (
    f"--namespace={NAMESPACE}",
    "--set=settings.reservation.ttl=6s",
    f"--set=node.cards=simulated={CARDS}",
    "--set=bootstrap.gfdImage=gfd:1",
    "--set=bootstrap.dcgmExporterImage=dcgm:1",
    "--set=ui.enabled=true",
)
STARTS_PODS = ("Deployment", "DaemonSet", "NetworkPolicy", "PodDisruptionBudget", "Certificate", "Issuer")
"""Kinds that are not applied; those of cert-manager are handled by the fake one."""
AUDIT = f"""
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {{level: Metadata, userGroups: ["system:serviceaccounts:{NAMESPACE}"]}}
- {{level: None}}
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
"""The part of the Deckhouse CRD that Croupier reads."""


@dataclass(frozen=True)
class Part:
    """A phase of the scenario: the installed objects, and the start of its audit log."""

    name: str
    objects: list[Object]
    since: int


@dataclass
class ChartEnv:
    lab: Lab
    folder: Path
    gate: int
    """Port of the webhook."""
    parts: list[Part] = field(default_factory=list)
    health: dict[str, int] = field(default_factory=dict)
    """Health port by process."""
    ports: dict[str, int] = field(default_factory=dict)
    begun: dict[str, int] = field(default_factory=dict)
    """Start offset in the log by process."""
    shown: dict[str, list[Any]] = field(default_factory=dict)
    """Prometheus results by expression."""
    results: dict[str, Any] = field(default_factory=dict)
    """Observations of the scenario, for the tests."""
    ended: int = 0
    """End offset of the audit log of the scenario."""

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
        """The audit log of one phase."""
        later = [other.since for other in self.parts if other.since > part.since]
        until = min(later, default=self.ended)
        return self.audit.read_bytes()[part.since : until].decode()

    async def become(self, name: str, *options: str) -> None:
        """Apply what `helm upgrade` with these options would, without pods."""
        wanted = await asyncio.to_thread(rendering.objects, *OPTIONS, *options)
        before = self.parts[-1].objects if self.parts else []
        self.parts.append(Part(name, wanted, self.audit.stat().st_size if self.audit.exists() else 0))
        await asyncio.to_thread(self._apply, before)

    def _apply(self, before: list[Object]) -> None:
        kept = [self._by_url(item) for item in self.objects if item["kind"] not in STARTS_PODS]
        crds = [item for item in kept if item["kind"] == "CustomResourceDefinition"]
        if not before:
            self._send(crds)
            self.lab.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        self._send(item for item in kept if item not in crds)
        gone = {_identity(item): item for item in before if item["kind"] not in STARTS_PODS}
        for known in map(_identity, self.objects):
            gone.pop(known, None)
        if gone:
            self.lab.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(gone.values()))
        for config_map in rendering.of_kind(self.objects, "ConfigMap"):
            for name, text in config_map["data"].items():
                (self.folder / name).write_text(text)

    def _send(self, objects: Iterable[Object]) -> None:
        """Apply with --force-conflicts, so that the rendered fields win, as with helm."""
        text = yaml.safe_dump_all(objects)
        self.lab.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def _by_url(self, one: Object) -> Object:
        """Replace the Service of a webhook configuration by the URL of the process."""
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
        env = {"POD_NAMESPACE": NAMESPACE, **({"NODE_NAME": node} if node else {})}
        log = self.lab.logs / f"{called}.log"
        self.begun[called] = log.stat().st_size if log.exists() else 0
        started = forks.croupier((*words, speaking, *more), log, env)
        self.lab.adopt(LabProcess(called, started.pid, started.create_time(), str(log)))

    def start_scheduler(self, replica: int = 1) -> None:
        """Start the second scheduler of the chart, under the account of the extender."""
        (port,) = ports.free(1, chance=random.Random())  # noqa: S311  # a port, no secret
        (written,) = (
            config_map["data"]["scheduler.yaml"]
            for config_map in rendering.of_kind(self.objects, "ConfigMap")
            if "scheduler.yaml" in config_map["data"]
        )
        settings = yaml.safe_load(written.replace(":9440", f":{self.ports[named(EXTENDER, replica)]}"))
        settings["clientConnection"]["kubeconfig"] = str(self.account(EXTENDER))
        file = self.folder / f"{named(SECOND_SCHEDULER, replica)}.yaml"
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
        self.lab.adopt(process.start(Program(named(SECOND_SCHEDULER, replica), argv), self.lab.logs))

    def log(self, name: str) -> str:
        """The log of a process since its last start."""
        return Path(self.lab.process(name).log).read_bytes()[self.begun[name] :].decode()

    async def ready(self, names: Sequence[str] = ()) -> None:
        await croupier_processes.wait_until_ready(
            self.lab, {name: self.health[name] for name in names or self.health}
        )

    async def rest(self) -> None:
        """Stop all processes of the chart; the control plane keeps running."""
        schedulers = (named(SECOND_SCHEDULER, 1), named(SECOND_SCHEDULER, 2))
        names = (*self.health, *schedulers)
        running = [part for part in self.lab.record.processes if part.name in names]
        await asyncio.gather(*(process.stop(part) for part in running))
        self.health.clear()
        self.ended = self.audit.stat().st_size


def named(name: str, replica: int) -> str:
    return name if replica == 1 else f"{name}-{replica}"


@contextlib.asynccontextmanager
async def raised(run: TestRun, folder: Path, discovery: Sequence[Object]) -> AsyncIterator[ChartEnv]:
    """A control plane with an audit log, the objects of the chart, and one node with cards.

    `discovery` are the CRDs of Node Feature Discovery; without them a minimal NodeFeature CRD is used.
    """
    (folder / "policy.yaml").write_text(AUDIT)
    flags = (f"--audit-policy-file={folder / 'policy.yaml'}", f"--audit-log-path={folder / 'audit.log'}")
    parts = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
    lab = await run.private(LabPlan(parts=parts, extra={API_SERVER: flags}))
    (gate,) = ports.free(1, chance=random.Random())  # noqa: S311  # a port, no secret
    chart = ChartEnv(lab, folder, gate)
    lab.kubectl("create", "namespace", NAMESPACE)
    foreign = [*(discovery or [NODE_FEATURE_CRD]), MODULE_CONFIG_CRD]
    lab.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(foreign))
    rules = [rendering.NODE_FEATURE_RULES] if discovery else []
    await chart.become("in memory", rendering.ALONE, rendering.IN_MEMORY, *rules)
    await fleet.create(lab, nodes.fleet(0, cards=None, named=[f"{NODE}={CARDS}"]), QUIET)
    for place in ("kubelet/device-plugins", "kubelet/pod-resources", "cdi", "tls"):
        (folder / place).mkdir(parents=True)
    yield chart


def _identity(one: Object) -> tuple[str, str, str]:
    meta = one["metadata"]
    return one["kind"], meta.get("namespace", ""), meta["name"]


def _here(word: str, served: Mapping[str, int], known: Mapping[str, str]) -> str:
    """Translate an argument of a container to the host."""
    option = word.partition("=")[0]
    if option in served:
        return f"{option}=127.0.0.1:{served[option]}"
    old = next((prefix for prefix in known if word.startswith(prefix)), "")
    return known.get(old, "") + word.removeprefix(old)
