"""Requests that a compromised account of Croupier must not be allowed."""

import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from croupier.api import kinds
from croupier.api.gpu import GPUNodeInventory
from croupier.api.meta import ObjectMeta
from croupier.controllers.bootstrap import service_manifests as bootstrap_pods
from croupier.controllers.bootstrap.service_manifests import ServiceImages
from croupier.core.nodes.bootstrap import DCGM, GFD, SERVICE
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import AlreadyExists
from tests.install.chart_env import NAMESPACE, ChartEnv

IMAGES = ServiceImages({GFD: "gfd:1", DCGM: "dcgm:1"})
Raw = dict[str, Any]


@dataclass
class CompromisedAccounts:
    """Clients of the agents of one node, and of the controller that creates pods."""

    cards: Client
    market: Client
    starter: Client

    async def starts(self, pod: Raw) -> Any:
        return await self.starter.create(kinds.PODS, pod, namespace=NAMESPACE, dry_run=True)


@asynccontextmanager
async def compromised_accounts(lived: ChartEnv) -> AsyncIterator[CompromisedAccounts]:
    await _create_objects(lived)
    at_home = [lived.account(name, node="mine") for name in ("croupier-node", "croupier-market")]
    starter = lived.account("gpu-bootstrap-controller")
    async with (
        api_client.connect(config.load(at_home[0])) as cards,
        api_client.connect(config.load(at_home[1])) as market,
        api_client.connect(config.load(starter)) as starts,
    ):
        yield CompromisedAccounts(cards, market, starts)


async def _create_objects(lived: ChartEnv) -> None:
    """Create two nodes, a pod on the other node, and a pod in the namespace that must not be deleted."""
    async with api_client.connect(config.load(lived.lab.kubeconfig)) as api:
        for name in ("mine", "theirs"):
            await _ignore_existing(api.create(kinds.NODES, {"metadata": {"name": name}}))
        spec = {"nodeName": "theirs", "containers": [{"name": "main", "image": "any"}]}
        for namespace in ("default", NAMESPACE):
            body = {"metadata": {"name": "theirs"}, "spec": spec}
            await _ignore_existing(api.create(kinds.PODS, body, namespace=namespace))


async def _ignore_existing(work: Awaitable[Any]) -> None:
    try:
        await work
    except AlreadyExists:
        return


WRITES_TO_OTHER_NODE: dict[str, Callable[[CompromisedAccounts], Awaitable[Any]]] = {
    "labels of another Node": lambda they: they.cards.patch(
        kinds.NODES, "theirs", {"metadata": {"labels": {"nvidia.com/gpu.count": "9"}}}
    ),
    "conditions of another Node": lambda they: they.cards.patch(
        kinds.NODES, "theirs", {"status": {"conditions": [_condition()]}}, subresource="status"
    ),
    "a pod of another node": lambda they: they.cards.delete(kinds.PODS, "theirs", namespace="default"),
    "the allocation of such a pod": lambda they: they.cards.patch(
        kinds.PODS,
        "theirs",
        {"metadata": {"annotations": {"gpu.mps.io/allocation": "[]"}}},
        namespace="default",
    ),
    "the heartbeat of another agent": lambda they: they.cards.create(
        kinds.LEASES, _lease("gpu-node-theirs", "gpu.deckhouse.io/node"), namespace=NAMESPACE
    ),
    "a limit on another node": lambda they: they.market.create(
        kinds.POD_ALLOCATIONS, _limit("theirs"), namespace="default"
    ),
    "the heartbeat of another market": lambda they: they.market.create(
        kinds.LEASES, _lease("mbcas-theirs", "mbcas.io/node"), namespace=NAMESPACE
    ),
}


def _condition() -> dict[str, str]:
    return {"type": "MIGLayoutApplied", "status": "True", "reason": "Forged", "message": ""}


def _lease(name: str, key: str) -> Raw:
    return {"metadata": {"name": name, "annotations": {key: "theirs"}}, "spec": {}}


def _limit(node: str) -> Raw:
    spec = {"namespace": "default", "podName": "theirs", "desiredCPULimit": "1", "nodeName": node}
    return {"metadata": {"name": "theirs"}, "spec": spec}


def service_pod(kind: Any = GFD) -> Raw:
    """The pod that the controller creates."""
    inventory = GPUNodeInventory(metadata=ObjectMeta(name="mine", uid="3f1c2a9e-5a55-4c38-9d0c-2f6d8f1f0a11"))
    return bootstrap_pods.body(kind, inventory, IMAGES)


def _changed(where: str, value: Any, kind: Any = GFD) -> Raw:
    """A service pod with one changed field."""
    pod = copy.deepcopy(service_pod(kind))
    *steps, last = where.split(".")
    at: Any = pod
    for step in steps:
        at = at[int(step)] if step.isdigit() else at.setdefault(step, {})
    at[last] = value
    return pod


_HOST = {"name": "features", "hostPath": {"path": "/"}}
_TOKEN = {
    "name": "features",
    "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
}
_MAIN = "spec.containers.0"
FORBIDDEN_PODS: dict[str, tuple[Raw, str]] = {
    "under another account of ours": (_changed("spec.serviceAccountName", "gpupool-controller"), "account"),
    "with the token of an account": (_changed("spec.automountServiceAccountToken", True), "account"),
    "with a token as a volume": (_changed("spec.volumes", [_TOKEN]), "sees more"),
    "with the whole node in it": (_changed("spec.volumes", [_HOST]), "sees more"),
    "with a folder for the exporter": (_changed("spec.volumes", [_HOST], DCGM), "sees more"),
    "on the network of its node": (_changed("spec.hostNetwork", True), "sees more"),
    "among the processes of its node": (_changed("spec.hostPID", True), "sees more"),
    "with another image": (_changed(f"{_MAIN}.image", "mine:1"), "another image"),
    "with the image of the other service": (_changed(f"{_MAIN}.image", "dcgm:1"), "another image"),
    "with a second container": (
        _changed("spec.initContainers", [{"name": "first", "image": "gfd:1"}]),
        "another image",
    ),
    "of another service": (_changed("metadata.labels", {SERVICE: "mining"}), "another image"),
    "with a command of its own": (_changed(f"{_MAIN}.command", ["sh"]), "command"),
    "with the command of the other service": (
        _changed(f"{_MAIN}.command", ["gpu-feature-discovery"], DCGM),
        "command",
    ),
    "with arguments of its own": (_changed(f"{_MAIN}.args", ["-c", "true"]), "command"),
    "with a command as a probe": (
        _changed(f"{_MAIN}.readinessProbe", {"exec": {"command": ["sh"]}}),
        "command",
    ),
    "with an environment of its own": (
        _changed(f"{_MAIN}.env", [{"name": "LD_PRELOAD", "value": "/mine.so"}]),
        "environment",
    ),
    "a privileged exporter": (
        _changed(f"{_MAIN}.securityContext", {"privileged": True}, DCGM),
        "may do more",
    ),
    "with the labels of the webhook": (
        _changed("metadata.labels", {SERVICE: GFD, "app": "gpu-admission-webhook"}),
        "label",
    ),
}
