"""Checks with SubjectAccessReviews that each service account has the permissions its process needs.

Only indispensable permissions are checked, not all that RBAC grants. A service account that does not exist is
skipped, because its process is not installed.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from croupier.core.installation.diagnosis_cluster import Lacking
from croupier.kube import together
from croupier.kube.client import Client, Selection
from croupier.kube.resource import Raw, Resource

REVIEWS: Final[Resource[Raw]] = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False, dict
)
ACCOUNTS: Final[Resource[Raw]] = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, dict)
AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Right:
    """`resource` as RBAC names it, with its subresource: `gpudevices/status`."""

    verbs: tuple[str, ...]
    resource: str
    group: str = ""
    here: bool = False
    """Limited to Croupier's namespace."""
    name: str = ""
    """Limited to one object."""


FOLLOW: Final = ("list", "watch")
GPU: Final = "gpu.deckhouse.io"
MPS: Final = "mps.nvidia.com"
MARKET: Final = "allocation.mbcas.io"
TELL: Final = Right(("create",), "events", "events.k8s.io")
REPORTS: Final = Right(FOLLOW, "leases", "coordination.k8s.io", here=True)


def _election(lease: str) -> tuple[Right, ...]:
    group = "coordination.k8s.io"
    return (
        Right(("create",), "leases", group, here=True),
        Right(("get", "update"), "leases", group, here=True, name=lease),
    )


_KEEPING: Final = (
    Right(("list", "watch", "patch"), "reservations", MPS),
    Right(("patch",), "reservations/status", MPS),
    Right(FOLLOW, "nodes"),
    Right(("list", "watch", "patch"), "pods"),
    Right(FOLLOW, "gpudevices", GPU),
    Right(FOLLOW, "gpupools", GPU),
    Right(("patch",), "gpudevices/status", GPU),
    TELL,
)

_BIND: Final = Right(("create",), "pods/binding")
_SHARED: Final = Right(("list", "watch", "create", "update", "delete"), "nodereservations", MPS)
_CARRIED_OVER: Final = Right(("list", "delete"), "nodereservations", MPS)
LEDGER: Final = "croupier-ledger"
EXTENDER: Final = "croupier-extender"

NEEDS: Final[dict[str, tuple[Right, ...]]] = {
    "gpu-inventory-controller": (
        Right(FOLLOW, "nodes"),
        Right(("list", "watch", "create", "patch", "delete"), "gpudevices", GPU),
        Right(("list", "watch", "create", "patch"), "gpunodeinventories", GPU),
        Right(("patch",), "gpudevices/status", GPU),
        Right(("patch",), "gpunodeinventories/status", GPU),
        TELL,
        REPORTS,
        *_election("croupier-inventory"),
    ),
    "gpu-bootstrap-controller": (
        Right(FOLLOW, "nodes"),
        Right(FOLLOW, "pods"),
        Right(FOLLOW, "gpudevices", GPU),
        Right(FOLLOW, "gpunodeinventories", GPU),
        Right(("patch",), "gpunodeinventories/status", GPU),
        TELL,
        REPORTS,
        *_election("croupier-bootstrap"),
    ),
    "gpupool-controller": (
        Right(("list", "watch", "patch"), "nodes"),
        Right(FOLLOW, "pods"),
        Right(("list", "watch", "patch"), "gpudevices", GPU),
        Right(("list", "watch", "patch"), "gpupools", GPU),
        Right(("patch",), "gpudevices/status", GPU),
        Right(("patch",), "gpupools/status", GPU),
        Right(FOLLOW, "reservations", MPS),
        Right(FOLLOW, "nodereservations", MPS),
        Right(("list", "watch", "create", "patch", "delete"), "configmaps", here=True),
        TELL,
        REPORTS,
        *_election("croupier-pools"),
    ),
    LEDGER: (_SHARED, *_KEEPING, *_election("croupier-manager")),
    EXTENDER: (_CARRIED_OVER, *_KEEPING, _BIND, *_election("croupier-book")),
    "croupier-cpu-limits": (
        Right(FOLLOW, "pods"),
        Right(("patch",), "pods/resize"),
        Right(("list", "watch", "patch"), "podallocations", MARKET),
        Right(("patch",), "podallocations/status", MARKET),
        TELL,
        REPORTS,
        *_election("croupier-cpu-limits"),
    ),
    "gpu-admission-webhook": (
        Right(FOLLOW, "nodes"),
        Right(FOLLOW, "pods"),
        Right(FOLLOW, "gpupools", GPU),
        TELL,
    ),
    "croupier-node": (
        Right(("list", "watch", "patch"), "nodes"),
        Right(("patch",), "nodes/status"),
        Right(("list", "watch", "patch", "delete"), "pods"),
        Right(FOLLOW, "gpudevices", GPU),
        Right(FOLLOW, "configmaps", here=True),
        Right(("create", "patch"), "leases", "coordination.k8s.io", here=True),
        TELL,
    ),
    "croupier-market": (
        Right(FOLLOW, "nodes"),
        Right(FOLLOW, "pods"),
        Right(("list", "watch", "create", "patch"), "podallocations", MARKET),
        Right(("create", "patch"), "leases", "coordination.k8s.io", here=True),
    ),
}
"""By service account, with the InMemory capacity manager."""
BESIDE_A_LEDGER: Final = (
    Right(("list", "watch", "update"), "nodereservations", MPS),
    Right(FOLLOW, "gpupools", GPU),
    Right(("patch",), "pods"),
    _BIND,
)
"""The permissions of an extender with the CRD capacity manager, whose controllers run in the manager."""


def needs(accounts: Collection[str]) -> dict[str, tuple[Right, ...]]:
    """The permissions of the existing accounts; the ledger's account implies the CRD capacity manager."""
    wanted = {**NEEDS, **({EXTENDER: BESIDE_A_LEDGER} if LEDGER in accounts else {})}
    return {account: rights for account, rights in wanted.items() if account in accounts}


async def lacking(api: Client, namespace: str) -> list[Lacking]:
    accounts = {item["metadata"]["name"] for item in (await api.list(ACCOUNTS, Selection(namespace))).items}

    async def check(account: str, right: Right, verb: str) -> Lacking | None:
        review = await api.create(REVIEWS, _review(account, right, verb, namespace))
        return None if review["status"]["allowed"] else Lacking(account, verb, _told(right, namespace))

    checks = [
        check(account, right, verb)
        for account, rights in needs(accounts).items()
        for right in rights
        for verb in right.verbs
    ]
    return [missing for missing in await together.all_of(checks, at_once=AT_ONCE) if missing is not None]


def _review(account: str, right: Right, verb: str, namespace: str) -> Raw:
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


def _told(right: Right, namespace: str) -> str:
    group = f".{right.group}" if right.group else ""
    place = f" in {namespace}" if right.here else ""
    return f"{right.resource}{group}{f' {right.name}' if right.name else ''}{place}"
