"""CustomResourceDefinitions of Croupier's kinds.

The schema comes from the Struct. This module adds what a Struct cannot express: short names, the columns of
`kubectl get`, and selectable fields.
"""

from dataclasses import dataclass
from typing import Any, Final

from croupier.api import kinds, schema
from croupier.api.meta import PART_OF
from croupier.kube.client.resource import Resource

CATEGORY: Final = "croupier"
"""`kubectl get croupier` lists the objects of all these kinds."""


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A column of `kubectl get`. A wide column is shown only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False

    def wire(self) -> dict[str, Any]:
        priority = {"priority": 1} if self.wide else {}
        return {"name": self.name, "type": self.type, "jsonPath": self.path, **priority}


@dataclass(frozen=True, slots=True)
class CustomResource:
    resource: Resource[Any]
    short: tuple[str, ...]
    columns: tuple[PrinterColumn, ...]
    selectable: tuple[str, ...] = ()

    @property
    def file_name(self) -> str:
        return f"{self.resource.group}_{self.resource.plural}.yaml"


AGE: Final = PrinterColumn("Age", ".metadata.creationTimestamp", "date")

KINDS: Final = (
    CustomResource(
        kinds.RESERVATIONS,
        short=("rsv",),
        columns=(
            PrinterColumn("Pod", ".spec.podKey"),
            PrinterColumn("Node", ".spec.nodeName"),
            PrinterColumn("Cards", ".spec.numCards", "integer"),
            PrinterColumn("Percent", ".spec.percentPerCard", "integer"),
            PrinterColumn("Phase", ".status.phase"),
            AGE,
            PrinterColumn("Owner", ".spec.owner", wide=True),
            PrinterColumn("Priority", ".spec.priority", "integer", wide=True),
            PrinterColumn("Expires", ".status.expireTime", wide=True),
            PrinterColumn("Message", ".status.message", wide=True),
        ),
        selectable=(".spec.nodeName", ".spec.podKey", ".status.phase"),
    ),
    CustomResource(
        kinds.NODE_RESERVATIONS,
        short=("nrsv",),
        columns=(
            PrinterColumn("Cards", ".spec.summary.cards", "integer"),
            PrinterColumn("Holders", ".spec.summary.holders", "integer"),
            PrinterColumn("Free cards", ".spec.summary.free.cards", "integer"),
            PrinterColumn("Free percent", ".spec.summary.free.percent", "integer"),
            PrinterColumn("Free slices", ".spec.summary.free.slices", "integer", wide=True),
            PrinterColumn("Audited", ".status.lastAuditTime", "date", wide=True),
            AGE,
        ),
    ),
    CustomResource(
        kinds.GPU_DEVICES,
        short=("gpudev", "gdevice"),
        columns=(
            PrinterColumn("Node", ".status.nodeName"),
            PrinterColumn("State", ".status.state"),
            PrinterColumn("Pool", ".status.poolRef.name"),
            PrinterColumn("Product", ".status.hardware.product"),
            PrinterColumn("Health", '.status.conditions[?(@.type=="Faulted")].reason'),
            PrinterColumn("Scheduling", ".status.withheld.state"),
            AGE,
            PrinterColumn("Reason", ".status.withheld.reason", wide=True),
            PrinterColumn("Phase", ".status.phase", wide=True),
            PrinterColumn("UUID", ".status.hardware.uuid", wide=True),
            PrinterColumn("Temperature", ".status.health.temperatureC", "integer", wide=True),
        ),
        selectable=(".status.nodeName", ".status.state", ".status.poolRef.name"),
    ),
    CustomResource(
        kinds.GPU_NODE_INVENTORIES,
        short=("gpunode",),
        columns=(
            PrinterColumn("Bootstrap", ".status.bootstrap.phase"),
            PrinterColumn("Ready", '.status.conditions[?(@.type=="ReadyForPooling")].status'),
            PrinterColumn("Reason", '.status.conditions[?(@.type=="ReadyForPooling")].reason'),
            PrinterColumn("Pools", ".status.pools.assigned[*].name"),
            PrinterColumn("Driver", ".status.driver.version"),
            PrinterColumn("Pending", ".status.pools.pending[*].inventoryIDs[*]", wide=True),
            PrinterColumn("CUDA", ".status.driver.cudaVersion", wide=True),
            AGE,
        ),
        selectable=(".status.bootstrap.phase",),
    ),
    CustomResource(
        kinds.GPU_POOLS,
        short=("gpool",),
        columns=(
            PrinterColumn("Mode", ".spec.allocation.mode"),
            PrinterColumn("Total", ".status.capacity.total", "integer"),
            PrinterColumn("Used", ".status.capacity.used", "integer"),
            PrinterColumn("Available", ".status.capacity.available", "integer"),
            PrinterColumn("Unit", ".status.capacity.unit"),
            PrinterColumn("Ready", '.status.conditions[?(@.type=="Available")].status'),
            PrinterColumn("Maintenance", '.status.conditions[?(@.type=="Maintenance")].status', wide=True),
            PrinterColumn("Strategy", ".spec.scheduling.strategy", wide=True),
            AGE,
        ),
        selectable=(".spec.allocation.mode",),
    ),
    CustomResource(
        kinds.POD_ALLOCATIONS,
        short=("palloc",),
        columns=(
            PrinterColumn("Pod", ".spec.podName"),
            PrinterColumn("Desired", ".spec.desiredCPULimit"),
            PrinterColumn("Applied", ".status.appliedCPULimit"),
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Reason", ".status.reason"),
            PrinterColumn("Node", ".spec.nodeName", wide=True),
            PrinterColumn("Original", ".status.originalCPULimit", wide=True),
            PrinterColumn("Generation", ".metadata.generation", "integer", wide=True),
            PrinterColumn("Observed", ".status.observedGeneration", "integer", wide=True),
            AGE,
        ),
        selectable=(".spec.podName", ".spec.nodeName", ".status.phase"),
    ),
)


def definitions() -> dict[str, dict[str, Any]]:
    """All CustomResourceDefinitions by file name."""
    return {kind.file_name: definition(kind) for kind in KINDS}


def definition(kind: CustomResource) -> dict[str, Any]:
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


def _version(kind: CustomResource) -> dict[str, Any]:
    selectable = [{"jsonPath": path} for path in kind.selectable]
    return {
        "name": kind.resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [column.wire() for column in kind.columns],
        **({"selectableFields": selectable} if selectable else {}),
        "schema": {"openAPIV3Schema": schema.object_schema(kind.resource)},
    }
