"""The tables in scenarios/api and the objects in examples, and helpers to create them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from croupier.api import crds
from croupier.api.crds import CustomResource
from croupier.kube.client.api_client import Client
from croupier.kube.client.resource import Raw

ROOT = Path(__file__).resolve().parents[2]
KIND = {kind.resource.kind: kind for kind in crds.KINDS}


@dataclass(frozen=True)
class Case:
    """A merge patch that must be refused at the field `at`, with `refused` in the error."""

    name: str
    way: str
    patch: Raw
    at: str
    refused: str


@dataclass(frozen=True)
class Table:
    kind: CustomResource
    good: Raw
    cases: tuple[Case, ...]


def table(path: Path) -> Table:
    data = yaml.safe_load(path.read_text())
    return Table(KIND[data["kind"]], data["good"], tuple(_case(row) for row in data["cases"]))


def _case(row: dict[str, Any]) -> Case:
    (way,) = row.keys() & {"create", "change", "status"}
    return Case(row["name"], way, row[way], row["at"], row["refused"])


TABLES = {path.stem: table(path) for path in sorted((ROOT / "scenarios/api").glob("*.yaml"))}
EXAMPLES = {
    path.stem: yaml.safe_load(path.read_text()) for path in sorted((ROOT / "examples").glob("*.yaml"))
}


def merged(base: Any, patch: Any) -> Any:
    """Apply a JSON merge patch like the API server: null removes, lists are replaced."""
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def placed(body: Raw, kind: CustomResource, namespace: str) -> Raw:
    """The object in the test's namespace, if its kind is namespaced."""
    return merged(body, {"metadata": {"namespace": namespace}}) if kind.resource.namespaced else body


async def create(api: Client, kind: CustomResource, body: Raw) -> Raw:
    """Create the object, then write its status."""
    raw = kind.resource.raw
    created = await api.create(raw, body)
    if "status" not in body:
        return created
    where = {"namespace": body["metadata"].get("namespace"), "subresource": "status"}
    return await api.patch(raw, body["metadata"]["name"], {"status": body["status"]}, **where)
