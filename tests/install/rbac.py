"""Permissions of accounts from RBAC, and their requests from the audit log."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Objects = Sequence[Mapping[str, Any]]
SELF_REVIEWS = ("selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews")
"""Every authenticated user may ask about itself."""


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on a resource; an empty namespace or name matches all."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        item = f" {self.name}" if self.name else ""
        return f"{self.verb} {what}{item}{f' in {self.namespace}' if self.namespace else ''}"


@dataclass(frozen=True, slots=True)
class AuditedRequest:
    """One request: the permission it needs, the client, and whether it was allowed."""

    right: Permission
    program: str
    allowed: bool


def granted(objects: Objects, *, without: Sequence[str] = ()) -> dict[str, set[Permission]]:
    """Permissions by account; roles that are not in `objects` are ignored."""
    roles = {
        (item["kind"], item["metadata"]["name"]): item for item in objects if item["kind"].endswith("Role")
    }
    found: defaultdict[str, set[Permission]] = defaultdict(set)
    for binding in (item for item in objects if item["kind"].endswith("RoleBinding")):
        if binding["roleRef"]["name"] in without:
            continue
        role = roles.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]))
        for subject in binding["subjects"] if role else ():
            found[subject["name"]] |= set(_rights(role or {}, binding["metadata"].get("namespace", "")))
    return dict(found)


def cluster_role_grants(objects: Objects) -> set[tuple[str, str]]:
    """Pairs of account and built-in ClusterRole."""
    own = {(item["kind"], item["metadata"]["name"]) for item in objects if item["kind"].endswith("Role")}
    return {
        (subject["name"], item["roleRef"]["name"])
        for item in objects
        if item["kind"].endswith("RoleBinding")
        and (item["roleRef"]["kind"], item["roleRef"]["name"]) not in own
        for subject in item["subjects"]
    }


def _rights(role: Mapping[str, Any], namespace: str) -> Iterable[Permission]:
    for rule in role["rules"]:
        assert "nonResourceURLs" not in rule, role["metadata"]["name"]
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", [""]):
                        yield Permission(group, resource, verb, namespace, name)


def requests_by_account(log: str, namespace: str) -> dict[str, set[AuditedRequest]]:
    """Requests by account of the namespace."""
    prefix = f"system:serviceaccount:{namespace}:"
    found: defaultdict[str, set[AuditedRequest]] = defaultdict(set)
    for event in map(json.loads, log.splitlines()):
        user, what = event["user"]["username"], event.get("objectRef")
        if what is None or not user.startswith(prefix) or what["resource"] in SELF_REVIEWS:
            continue
        found[user.removeprefix(prefix)] |= set(_requests(event, what))
    return dict(found)


def _requests(event: Mapping[str, Any], what: Mapping[str, str]) -> Iterable[AuditedRequest]:
    sub = f"/{what['subresource']}" if "subresource" in what else ""
    allowed = event.get("annotations", {}).get("authorization.k8s.io/decision") == "allow"
    program = event.get("userAgent", "").partition("/")[0]
    # An apply that creates the object also needs the create permission.
    made = event["verb"] == "patch" and event.get("responseStatus", {}).get("code") == 201
    for verb in (event["verb"], *(["create"] if made else ())):
        place = what.get("namespace", ""), "" if verb == "create" else what.get("name", "")
        yield AuditedRequest(
            Permission(what.get("apiGroup", ""), f"{what['resource']}{sub}", verb, *place), program, allowed
        )


def covers(right: Permission, need: Permission) -> bool:
    same = (right.group, right.resource, right.verb) == (need.group, need.resource, need.verb)
    return same and right.namespace in ("", need.namespace) and right.name in ("", need.name)


def missing(rights: Iterable[Permission], deeds: Iterable[AuditedRequest]) -> list[str]:
    """Requests without a permission."""
    known = tuple(rights)
    wanted = {deed.right for deed in deeds if not any(covers(right, deed.right) for right in known)}
    return sorted({str(Permission(item.group, item.resource, item.verb, item.namespace)) for item in wanted})


def unused(rights: Iterable[Permission], deeds: Iterable[AuditedRequest]) -> list[str]:
    """Permissions that no request used."""
    needs = {deed.right for deed in deeds}
    return sorted(str(right) for right in rights if not any(covers(right, need) for need in needs))
