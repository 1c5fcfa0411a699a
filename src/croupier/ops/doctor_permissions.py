"""Checks with SubjectAccessReviews that each service account has the permissions its process needs.

Only indispensable permissions are checked, not all that RBAC grants. A service account that does not exist is
skipped, because its process is not installed.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from croupier.core.installation.diagnosis_cluster import MissingPermission
from croupier.kube.client import concurrency
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.resource import Raw, Resource

REVIEWS: Final[Resource[Raw]] = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False, dict
)
ACCOUNTS: Final[Resource[Raw]] = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, dict)
AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class RequiredPermission:
    """`resource` as RBAC names it, with its subresource: `gpudevices/status`."""

    verbs: tuple[str, ...]
    resource: str
    group: str = ""
    here: bool = False
    """Limited to Croupier's namespace."""
    name: str = ""
    """Limited to one object."""


LIST_WATCH: Final = ("list", "watch")
GPU: Final = "gpu.deckhouse.io"
MPS: Final = "mps.nvidia.com"
MARKET: Final = "allocation.mbcas.io"
WRITE_EVENTS: Final = RequiredPermission(("create",), "events", "events.k8s.io")
READ_LEASES: Final = RequiredPermission(LIST_WATCH, "leases", "coordination.k8s.io", here=True)


def _election(lease: str) -> tuple[RequiredPermission, ...]:
    group = "coordination.k8s.io"
    return (
        RequiredPermission(("create",), "leases", group, here=True),
        RequiredPermission(("get", "update"), "leases", group, here=True, name=lease),
    )


_LEDGER_CONTROLLERS: Final = (
    RequiredPermission(("list", "watch", "patch"), "reservations", MPS),
    RequiredPermission(("patch",), "reservations/status", MPS),
    RequiredPermission(LIST_WATCH, "nodes"),
    RequiredPermission(("list", "watch", "patch"), "pods"),
    RequiredPermission(LIST_WATCH, "gpudevices", GPU),
    RequiredPermission(LIST_WATCH, "gpupools", GPU),
    RequiredPermission(("patch",), "gpudevices/status", GPU),
    WRITE_EVENTS,
)

_BIND: Final = RequiredPermission(("create",), "pods/binding")
_WRITE_LEDGERS: Final = RequiredPermission(
    ("list", "watch", "create", "update", "delete"), "nodereservations", MPS
)
_MIGRATE: Final = RequiredPermission(("list", "delete"), "nodereservations", MPS)
LEDGER: Final = "croupier-ledger"
EXTENDER: Final = "croupier-extender"

NEEDS: Final[dict[str, tuple[RequiredPermission, ...]]] = {
    "gpu-inventory-controller": (
        RequiredPermission(LIST_WATCH, "nodes"),
        RequiredPermission(("list", "watch", "create", "patch", "delete"), "gpudevices", GPU),
        RequiredPermission(("list", "watch", "create", "patch"), "gpunodeinventories", GPU),
        RequiredPermission(("patch",), "gpudevices/status", GPU),
        RequiredPermission(("patch",), "gpunodeinventories/status", GPU),
        WRITE_EVENTS,
        READ_LEASES,
        *_election("croupier-inventory"),
    ),
    "gpu-bootstrap-controller": (
        RequiredPermission(LIST_WATCH, "nodes"),
        RequiredPermission(LIST_WATCH, "pods"),
        RequiredPermission(LIST_WATCH, "gpudevices", GPU),
        RequiredPermission(LIST_WATCH, "gpunodeinventories", GPU),
        RequiredPermission(("patch",), "gpunodeinventories/status", GPU),
        WRITE_EVENTS,
        READ_LEASES,
        *_election("croupier-bootstrap"),
    ),
    "gpupool-controller": (
        RequiredPermission(("list", "watch", "patch"), "nodes"),
        RequiredPermission(LIST_WATCH, "pods"),
        RequiredPermission(("list", "watch", "patch"), "gpudevices", GPU),
        RequiredPermission(("list", "watch", "patch"), "gpupools", GPU),
        RequiredPermission(("patch",), "gpudevices/status", GPU),
        RequiredPermission(("patch",), "gpupools/status", GPU),
        RequiredPermission(LIST_WATCH, "reservations", MPS),
        RequiredPermission(LIST_WATCH, "nodereservations", MPS),
        RequiredPermission(("list", "watch", "create", "patch", "delete"), "configmaps", here=True),
        WRITE_EVENTS,
        READ_LEASES,
        *_election("croupier-pools"),
    ),
    LEDGER: (_WRITE_LEDGERS, *_LEDGER_CONTROLLERS, *_election("croupier-manager")),
    EXTENDER: (_MIGRATE, *_LEDGER_CONTROLLERS, _BIND, *_election("croupier-book")),
    "croupier-cpu-limits": (
        RequiredPermission(LIST_WATCH, "pods"),
        RequiredPermission(("patch",), "pods/resize"),
        RequiredPermission(("list", "watch", "patch"), "podallocations", MARKET),
        RequiredPermission(("patch",), "podallocations/status", MARKET),
        WRITE_EVENTS,
        READ_LEASES,
        *_election("croupier-cpu-limits"),
    ),
    "gpu-admission-webhook": (
        RequiredPermission(LIST_WATCH, "nodes"),
        RequiredPermission(LIST_WATCH, "pods"),
        RequiredPermission(LIST_WATCH, "gpupools", GPU),
        WRITE_EVENTS,
    ),
    "croupier-node": (
        RequiredPermission(("list", "watch", "patch"), "nodes"),
        RequiredPermission(("patch",), "nodes/status"),
        RequiredPermission(("list", "watch", "patch", "delete"), "pods"),
        RequiredPermission(LIST_WATCH, "gpudevices", GPU),
        RequiredPermission(LIST_WATCH, "configmaps", here=True),
        RequiredPermission(("create", "patch"), "leases", "coordination.k8s.io", here=True),
        WRITE_EVENTS,
    ),
    "croupier-market": (
        RequiredPermission(LIST_WATCH, "nodes"),
        RequiredPermission(LIST_WATCH, "pods"),
        RequiredPermission(("list", "watch", "create", "patch"), "podallocations", MARKET),
        RequiredPermission(("create", "patch"), "leases", "coordination.k8s.io", here=True),
    ),
}
"""By service account, with the InMemory capacity manager."""
EXTENDER_WITH_CRD: Final = (
    RequiredPermission(("list", "watch", "update"), "nodereservations", MPS),
    RequiredPermission(LIST_WATCH, "gpupools", GPU),
    RequiredPermission(("patch",), "pods"),
    _BIND,
)
"""The permissions of an extender with the CRD capacity manager, whose controllers run in the manager."""


def required(accounts: Collection[str]) -> dict[str, tuple[RequiredPermission, ...]]:
    """The permissions of the existing accounts; the ledger's account implies the CRD capacity manager."""
    wanted = {**NEEDS, **({EXTENDER: EXTENDER_WITH_CRD} if LEDGER in accounts else {})}
    return {account: rights for account, rights in wanted.items() if account in accounts}


async def missing(api: Client, namespace: str) -> list[MissingPermission]:
    accounts = {item["metadata"]["name"] for item in (await api.list(ACCOUNTS, Selection(namespace))).items}

    async def check(account: str, right: RequiredPermission, verb: str) -> MissingPermission | None:
        review = await api.create(REVIEWS, _review(account, right, verb, namespace))
        return (
            None
            if review["status"]["allowed"]
            else MissingPermission(account, verb, _describe(right, namespace))
        )

    checks = [
        check(account, right, verb)
        for account, rights in required(accounts).items()
        for right in rights
        for verb in right.verbs
    ]
    return [
        missing
        for missing in await concurrency.gather_limited(checks, at_once=AT_ONCE)
        if missing is not None
    ]


def _review(account: str, right: RequiredPermission, verb: str, namespace: str) -> Raw:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "verb": verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace if right.here else "",
        "name": right.name,
    }
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "groups": groups,
            "resourceAttributes": {name: value for name, value in attributes.items() if value},
        }
    }


def _describe(right: RequiredPermission, namespace: str) -> str:
    group = f".{right.group}" if right.group else ""
    place = f" in {namespace}" if right.here else ""
    return f"{right.resource}{group}{f' {right.name}' if right.name else ''}{place}"
