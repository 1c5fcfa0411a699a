"""Checks with SubjectAccessReviews that each service account has the permissions its process needs, and that
the account of the page has no permission to write.

permissions.json is generated from the RBAC of the chart (tools/chart.py): all that the chart grants to an
account by roles of its own, whatever its values are; about 200 reviews. A service account that does not exist
is skipped, because its process is not installed.
"""

from collections.abc import Collection
from dataclasses import dataclass
from importlib import resources
from typing import Final

import msgspec

from croupier.api import kinds
from croupier.core.cards.lifecycle import LEDGER
from croupier.core.installation.diagnosis_cluster import ExcessPermission, MissingPermission
from croupier.kube.client import concurrency
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.resource import Raw

AT_ONCE: Final = 8
PAGE_ACCOUNT: Final = "croupier-ui"


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


_WRITES: Final = ("create", "update", "patch", "delete")
NOT_FOR_PAGE: Final = (
    RequiredPermission(_WRITES, "pods", here=True),
    RequiredPermission(_WRITES, "secrets", here=True),
    RequiredPermission(_WRITES, "nodes"),
    RequiredPermission(_WRITES, "gpudevices", "gpu.deckhouse.io"),
    RequiredPermission(_WRITES, "gpupools", "gpu.deckhouse.io"),
    RequiredPermission(_WRITES, "reservations", "mps.nvidia.com", here=True),
    RequiredPermission(_WRITES, "nodereservations", "mps.nvidia.com"),
)
"""What the page must not do under its own account."""


def required(accounts: Collection[str]) -> dict[str, tuple[RequiredPermission, ...]]:
    """The permissions of the existing accounts; the ledger's account implies the CRD capacity manager."""
    text = resources.files("croupier.ops").joinpath("permissions.json").read_bytes()
    manager = "CRD" if LEDGER in accounts else "InMemory"
    wanted = msgspec.convert(msgspec.json.decode(text)[manager], dict[str, tuple[RequiredPermission, ...]])
    return {account: rights for account, rights in wanted.items() if account in accounts}


async def missing(api: Client, namespace: str) -> list[MissingPermission]:
    accounts = await _accounts(api, namespace)

    async def check(account: str, right: RequiredPermission, verb: str) -> MissingPermission | None:
        review = await api.create(kinds.SUBJECT_ACCESS_REVIEWS, _review(account, right, verb, namespace))
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


async def excess(api: Client, namespace: str) -> list[ExcessPermission]:
    """What the account of the page may write, in the whole cluster or in Croupier's namespace."""
    if PAGE_ACCOUNT not in await _accounts(api, namespace):
        return []

    async def check(right: RequiredPermission, verb: str) -> ExcessPermission | None:
        review = await api.create(kinds.SUBJECT_ACCESS_REVIEWS, _review(PAGE_ACCOUNT, right, verb, namespace))
        status = review["status"]
        if not status["allowed"]:
            return None
        return ExcessPermission(PAGE_ACCOUNT, verb, _describe(right, namespace), status.get("reason", ""))

    checks = [check(right, verb) for right in NOT_FOR_PAGE for verb in right.verbs]
    return [right for right in await concurrency.gather_limited(checks, at_once=AT_ONCE) if right is not None]


async def _accounts(api: Client, namespace: str) -> set[str]:
    listed = await api.list(kinds.SERVICE_ACCOUNTS, Selection(namespace))
    return {account.metadata.name for account in listed.items}


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
