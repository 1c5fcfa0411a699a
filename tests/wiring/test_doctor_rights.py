"""What the doctor asks for each account, the manifests grant: else it would cry wolf on every cluster."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.wiring import doctor_rights
from croupier.wiring.doctor_rights import Right
from tests.install import rendering

MANIFEST = Path(__file__).resolve().parents[2] / "deployments/default/croupier.yaml"


@cache
def in_memory() -> list[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [one for one in yaml.load_all(MANIFEST.read_text(), Loader=loader) if one]


BOOKS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "InMemory": in_memory,
    "CRD": lambda: rendering.objects(rendering.HIGHLY_AVAILABLE),
}


def granted(documents: list[dict[str, Any]], account: str) -> Iterator[tuple[dict[str, Any], bool]]:
    """The rules of an account, and whether they hold in our namespace only."""
    roles = {(one["kind"], one["metadata"]["name"]): one.get("rules") or [] for one in documents}
    for one in documents:
        if one["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            subjects = [subject["name"] for subject in one.get("subjects") or []]
            role = (one["roleRef"]["kind"], one["roleRef"]["name"])
            if account in subjects:
                yield from ((rule, one["kind"] == "RoleBinding") for rule in roles.get(role, []))


def allows(rule: dict[str, Any], here: bool, right: Right, verb: str) -> bool:
    return (
        right.group in rule["apiGroups"]
        and right.resource in rule["resources"]
        and verb in rule["verbs"]
        and (not rule.get("resourceNames") or right.name in rule["resourceNames"])
        and (right.here or not here)
    )


@pytest.mark.parametrize("book", BOOKS.values(), ids=BOOKS)
def test_what_is_asked_for_is_granted(book):
    documents = book()
    accounts = {one["metadata"]["name"] for one in documents if one["kind"] == "ServiceAccount"}
    needed = doctor_rights.needs(accounts)
    lacking = [
        (account, verb, right.resource, right.name)
        for account, rights in needed.items()
        for right in rights
        for verb in right.verbs
        if not any(allows(rule, here, right, verb) for rule, here in granted(documents, account))
    ]
    assert not lacking
    assert len(needed) >= 8
