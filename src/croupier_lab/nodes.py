"""Manifests of simulated nodes.

A simulated Node has the allocatable resources of a kubelet, the labels of GPU Feature Discovery, and the PCI
devices of Node Feature Discovery.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from croupier.core.cards import catalogue
from croupier.core.cards.catalogue import CardModel
from croupier_lab.errors import LabError

MAX_CARDS = 16
ZONES = ("zone-a", "zone-b", "zone-c")
REGION = "lab"
DRIVER = "570.124.06"
CUDA = "12.8"
KWOK_ANNOTATION = {"kwok.x-k8s.io/node": "fake"}
KUBELET = "kwok"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*")
_CARDS = re.compile(r"(?P<model>[^:]+):(?P<count>\d+)")


class InvalidNodeOptionError(LabError):
    """An invalid option; the message says what is allowed."""


@dataclass(frozen=True, slots=True)
class SimulatedNodeCards:
    """A number of cards of one model."""

    model: CardModel
    count: int


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    name: str
    zone: str
    cards: SimulatedNodeCards | None = None


def parse_cards(text: str, option: str = "--gpus") -> SimulatedNodeCards:
    """`MODEL:COUNT`."""
    found = _CARDS.fullmatch(text)
    if found is None:
        raise InvalidNodeOptionError(f"{option} {text}: write MODEL:COUNT, for example H100:8.")
    count = int(found["count"])
    if not 1 <= count <= MAX_CARDS:
        raise InvalidNodeOptionError(f"{option} {text}: a node has 1 to {MAX_CARDS} cards.")
    try:
        return SimulatedNodeCards(catalogue.find(found["model"]), count)
    except catalogue.UnknownModel as unknown:
        raise InvalidNodeOptionError(f"{option} {text}: {unknown}.") from unknown


def fleet(count: int, *, cards: str | None, named: Sequence[str]) -> list[SimulatedNode]:
    """`count` nodes called node-1, node-2, ... and the `named` ones (NAME=MODEL:COUNT)."""
    if count < 0:
        raise InvalidNodeOptionError(f"--nodes {count}: the number of nodes cannot be negative.")
    same = parse_cards(cards) if cards else None
    pairs = [(f"node-{number}", same) for number in range(1, count + 1)]
    pairs += [_parse_named(text) for text in named]
    _reject_duplicates([name for name, _ in pairs])
    return [
        SimulatedNode(name, ZONES[index % len(ZONES)], cards) for index, (name, cards) in enumerate(pairs)
    ]


def manifest(node: SimulatedNode, now: datetime) -> dict[str, Any]:
    """The Node object, already Ready; KWOK renews its lease and runs its pods.

    It contains everything that controllers would add later, which saves five writes per node.
    """
    resources = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "110"}
    if node.cards is not None:
        resources["nvidia.com/gpu"] = str(node.cards.count)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "annotations": {**KWOK_ANNOTATION, "node.alpha.kubernetes.io/ttl": "0"},
            "labels": {**_topology_labels(node), **(_features(node.cards) if node.cards else {})},
        },
        "status": {
            "phase": "Running",
            "capacity": resources,
            "allocatable": resources,
            "addresses": [{"type": "Hostname", "address": node.name}],
            "conditions": _conditions(now.strftime("%Y-%m-%dT%H:%M:%SZ")),
            "nodeInfo": _node_info(),
        },
    }


def _conditions(moment: str) -> list[dict[str, str]]:
    fine = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}
    return [
        {
            "type": kind,
            "status": status,
            "reason": "Simulated",
            "message": "simulated node without a kubelet",
            "lastHeartbeatTime": moment,
            "lastTransitionTime": moment,
        }
        for kind, status in fine.items()
    ]


def _node_info() -> dict[str, str]:
    unknown = dict.fromkeys(("bootID", "kernelVersion", "machineID", "osImage", "systemUUID"), "")
    versions = dict.fromkeys(("containerRuntimeVersion", "kubeProxyVersion", "kubeletVersion"), KUBELET)
    return {**unknown, **versions, "architecture": "amd64", "operatingSystem": "linux"}


def _parse_named(text: str) -> tuple[str, SimulatedNodeCards]:
    name, separator, cards = text.partition("=")
    if not separator or not name or not cards:
        raise InvalidNodeOptionError(
            f"--node {text}: write NAME=MODEL:COUNT, for example gpu-worker=A100-80GB:4."
        )
    if not _NAME.fullmatch(name) or len(name) > 253:
        raise InvalidNodeOptionError(
            f"--node {text}: {name!r} is not a valid node name; use lower-case letters, digits, '-' and '.'."
        )
    return name, parse_cards(cards, f"--node {name}=")


def _reject_duplicates(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidNodeOptionError(f"--node {name}: duplicate name; node names must be unique.")
        seen.add(name)


def _topology_labels(node: SimulatedNode) -> dict[str, str]:
    return {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": REGION,
        "topology.kubernetes.io/zone": node.zone,
    }


def _features(cards: SimulatedNodeCards) -> dict[str, str]:
    model = cards.model
    mig = {"strategy": "mixed"} if model.mig_capable else {}
    gpu = {
        "present": "true",
        "product": model.product,
        "family": model.architecture,
        "memory": str(model.memory_mib),
        "count": str(cards.count),
        "replicas": "1",
        "compute.major": str(model.compute_major),
        "compute.minor": str(model.compute_minor),
    }
    return {
        **{f"nvidia.com/gpu.{name}": value for name, value in gpu.items()},
        **{f"nvidia.com/mig.{name}": value for name, value in mig.items()},
        "nvidia.com/mig.capable": str(model.mig_capable).lower(),
        **_cuda(),
        **_devices(cards),
    }


def _cuda() -> dict[str, str]:
    driver, runtime = DRIVER.split("."), CUDA.split(".")
    return {
        "nvidia.com/cuda.driver-version.full": DRIVER,
        "nvidia.com/cuda.driver-version.major": driver[0],
        "nvidia.com/cuda.driver-version.minor": driver[1],
        "nvidia.com/cuda.driver-version.revision": driver[2],
        "nvidia.com/cuda.runtime-version.full": CUDA,
        "nvidia.com/cuda.runtime-version.major": runtime[0],
        "nvidia.com/cuda.runtime-version.minor": runtime[1],
    }


def _devices(cards: SimulatedNodeCards) -> dict[str, str]:
    pci = {
        "vendor": catalogue.NVIDIA,
        "device": cards.model.pci_device,
        "class": catalogue.CLASS_3D_CONTROLLER,
    }
    return {
        f"gpu.deckhouse.io/device.{index:02}.{name}": value
        for index in range(cards.count)
        for name, value in pci.items()
    }
