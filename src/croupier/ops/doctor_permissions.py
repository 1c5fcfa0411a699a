"""Checks with SubjectAccessReviews that each service account has the permissions its process needs.

permissions.json is generated from the RBAC of the chart (tools/chart.py): all that the chart grants to an
account by roles of its own, whatever its values are; about 160 reviews. A service account that does not exist
is skipped, because its process is not installed.
"""

from collections.abc import Collection
from dataclasses import dataclass
from importlib import resources
from typing import Final

import msgspec

from croupier.api import kinds
from croupier.core.cards.lifecycle import LEDGER
from croupier.core.installation.diagnosis_cluster import MissingPermission
from croupier.kube.client import concurrency
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.resource import Raw

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


def required(accounts: Collection[str]) -> dict[str, tuple[RequiredPermission, ...]]:
    """The permissions of the existing accounts; the ledger's account implies the CRD capacity manager."""
    text = resources.files("croupier.ops").joinpath("permissions.json").read_bytes()
    manager = "CRD" if LEDGER in accounts else "InMemory"
    wanted = msgspec.convert(msgspec.json.decode(text)[manager], dict[str, tuple[RequiredPermission, ...]])
    return {account: rights for account, rights in wanted.items() if account in accounts}


async def missing(api: Client, namespace: str) -> list[MissingPermission]:
    accounts = {
        item["metadata"]["name"]
        for item in (await api.list(kinds.SERVICE_ACCOUNTS, Selection(namespace))).items
    }

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
