"""The manifests grant all permissions that the doctor checks; else it would complain in every cluster."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.ops import doctor_permissions
from croupier.ops.doctor_permissions import RequiredPermission
from tests.install import rendering

MANIFEST = Path(__file__).resolve().parents[2] / "deployments/default/croupier.yaml"


@cache
def plain() -> list[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [document for document in yaml.load_all(MANIFEST.read_text(), Loader=loader) if document]


CAPACITY_MANAGERS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "InMemory": lambda: rendering.objects(rendering.IN_MEMORY),
    "CRD": rendering.objects,
    "plain manifests": plain,
}


def granted(documents: list[dict[str, Any]], account: str) -> Iterator[tuple[dict[str, Any], bool]]:
    """The rules of a service account, and whether they are limited to Croupier's namespace."""
    roles = {
        (document["kind"], document["metadata"]["name"]): document.get("rules") or []
        for document in documents
    }
    for document in documents:
        if document["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            subjects = [subject["name"] for subject in document.get("subjects") or []]
            role = (document["roleRef"]["kind"], document["roleRef"]["name"])
            if account in subjects:
                yield from ((rule, document["kind"] == "RoleBinding") for rule in roles.get(role, []))


def allows(rule: dict[str, Any], here: bool, right: RequiredPermission, verb: str) -> bool:
    return (
        right.group in rule["apiGroups"]
        and right.resource in rule["resources"]
        and verb in rule["verbs"]
        and (not rule.get("resourceNames") or right.name in rule["resourceNames"])
        and (right.here or not here)
    )


@pytest.mark.parametrize("book", CAPACITY_MANAGERS.values(), ids=CAPACITY_MANAGERS)
def test_checked_permissions_are_granted_by_the_manifests(book):
    documents = book()
    accounts = {
        document["metadata"]["name"] for document in documents if document["kind"] == "ServiceAccount"
    }
    needed = doctor_permissions.required(accounts)
    lacking = [
        (account, verb, right.resource, right.name)
        for account, rights in needed.items()
        for right in rights
        for verb in right.verbs
        if not any(allows(rule, here, right, verb) for rule, here in granted(documents, account))
    ]
    assert not lacking
    assert len(needed) >= 8
