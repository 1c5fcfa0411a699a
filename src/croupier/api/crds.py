"""CustomResourceDefinitions of Croupier's kinds.

The schema comes from the Struct. This module adds what a Struct cannot express: short names, the columns of
`kubectl get`, and selectable fields.
"""

from dataclasses import dataclass
from typing import Any, Final

from croupier.api import kinds, schema
from croupier.api.meta import PART_OF
from croupier.kube.resource import Resource

CATEGORY: Final = "croupier"
"""`kubectl get croupier` lists the objects of all these kinds."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`. A wide column is shown only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def wire(self) -> dict[str, Any]:
        priority = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **priority}


@dataclass(frozen=True, slots=True)
class Kind:
    resource: Resource[Any]
    short: tuple[str, ...]
    columns: tuple[Column, ...]
    selectable: tuple[str, ...] = ()

    @property
    def file_name(self) -> str:
        return f"{self.resource.group}_{self.resource.plural}.yaml"


AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")

KINDS: Final = (
    Kind(
        kinds.RESERVATIONS,
        short=("rsv",),
        columns=(
            Column("Pod", ".spec.podKey"),
            Column("Node", ".spec.nodeName"),
            Column("Cards", ".spec.numCards", "integer"),
            Column("Percent", ".spec.percentPerCard", "integer"),
            Column("Phase", ".status.phase"),
            AGE,
            Column("Owner", ".spec.owner", wide=True),
            Column("Priority", ".spec.priority", "integer", wide=True),
            Column("Message", ".status.message", wide=True),
        ),
        selectable=(".spec.nodeName", ".spec.podKey", ".status.phase"),
    ),
    Kind(
        kinds.NODE_RESERVATIONS,
        short=("nrsv",),
        columns=(
            Column("Cards", ".status.cards", "integer"),
            Column("Holders", ".status.holders", "integer"),
            Column("Free cards", ".status.free.cards", "integer"),
            Column("Free percent", ".status.free.percent", "integer"),
            Column("Free slices", ".status.free.slices", "integer", wide=True),
            Column("Audited", ".status.lastAuditTime", "date", wide=True),
            AGE,
        ),
    ),
    Kind(
        kinds.GPU_DEVICES,
        short=("gpudev", "gdevice"),
        columns=(
            Column("Node", ".status.nodeName"),
            Column("State", ".status.state"),
            Column("Pool", ".status.poolRef.name"),
            Column("Product", ".status.hardware.product"),
            Column("Health", '.status.conditions[?(@.type=="Faulted")].reason'),
            AGE,
            Column("Phase", ".status.phase", wide=True),
            Column("UUID", ".status.hardware.uuid", wide=True),
            Column("Temperature", ".status.health.temperatureC", "integer", wide=True),
        ),
        selectable=(".status.nodeName", ".status.state", ".status.poolRef.name"),
    ),
    Kind(
        kinds.GPU_NODE_INVENTORIES,
        short=("gpunode",),
        columns=(
            Column("Bootstrap", ".status.bootstrap.phase"),
            Column("Ready", '.status.conditions[?(@.type=="ReadyForPooling")].status'),
            Column("Reason", '.status.conditions[?(@.type=="ReadyForPooling")].reason'),
            Column("Driver", ".status.driver.version"),
            Column("CUDA", ".status.driver.cudaVersion", wide=True),
            AGE,
        ),
        selectable=(".status.bootstrap.phase",),
    ),
    Kind(
        kinds.GPU_POOLS,
        short=("gpool",),
        columns=(
            Column("Mode", ".spec.allocation.mode"),
            Column("Total", ".status.capacity.total", "integer"),
            Column("Used", ".status.capacity.used", "integer"),
            Column("Available", ".status.capacity.available", "integer"),
            Column("Unit", ".status.capacity.unit"),
            Column("Ready", '.status.conditions[?(@.type=="Available")].status'),
            Column("Maintenance", '.status.conditions[?(@.type=="Maintenance")].status', wide=True),
            Column("Strategy", ".spec.scheduling.strategy", wide=True),
            AGE,
        ),
        selectable=(".spec.allocation.mode",),
    ),
    Kind(
        kinds.POD_ALLOCATIONS,
        short=("palloc",),
        columns=(
            Column("Pod", ".spec.podName"),
            Column("Desired", ".spec.desiredCPULimit"),
            Column("Applied", ".status.appliedCPULimit"),
            Column("Phase", ".status.phase"),
            Column("Reason", ".status.reason"),
            Column("Node", ".spec.nodeName", wide=True),
            Column("Original", ".status.originalCPULimit", wide=True),
            AGE,
        ),
        selectable=(".spec.podName", ".spec.nodeName", ".status.phase"),
    ),
)


def definitions() -> dict[str, dict[str, Any]]:
    """All CustomResourceDefinitions by file name."""
    return {kind.file_name: definition(kind) for kind in KINDS}


def definition(kind: Kind) -> dict[str, Any]:
    resource = kind.resource
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.full_name, "labels": {**PART_OF}},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": list(kind.short),
                "categories": [CATEGORY],
            },
            "versions": [_version(kind)],
        },
    }


def _version(kind: Kind) -> dict[str, Any]:
    selectable = [{"jsonPath": path} for path in kind.selectable]
    return {
        "name": kind.resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [column.wire() for column in kind.columns],
        **({"selectableFields": selectable} if selectable else {}),
        "schema": {"openAPIV3Schema": schema.root(kind.resource.type)},
    }
