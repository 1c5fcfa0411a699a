"""Every validation rule has an invalid example that the API server refuses with a readable error."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from croupier.api import crds
from croupier.api.crds import CustomResource
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import Invalid
from croupier.kube.client.resource import Raw
from tests.api import scenario_tables
from tests.api.scenario_tables import KIND, TABLES, Case, Table

RULES = "x-kubernetes-validations"


@cache
def schema_of(kind: CustomResource) -> Raw:
    (version,) = crds.definition(kind)["spec"]["versions"]
    schema: Raw = version["schema"]["openAPIV3Schema"]
    return schema


def nodes(schema: Raw, path: str = "") -> Iterator[tuple[str, Raw]]:
    """Every node of a schema with its path. List items and map values are `[]`."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        if (path, name) != ("", "metadata"):
            yield from nodes(inner, f"{path}.{name}" if path else name)
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from nodes(schema[word], f"{path}[]")


def fields(refusal: Invalid, kind: CustomResource) -> list[tuple[str, str]]:
    """The refused fields with the errors. List indexes and map keys are replaced by `[]`."""
    maps = [path for path, schema in nodes(schema_of(kind)) if "additionalProperties" in schema]
    return [(normal(cause.get("field", ""), maps), cause["message"]) for cause in refusal.causes]


def normal(path: str, maps: list[str]) -> str:
    if path == "<nil>":
        return ""
    path = re.sub(r"\[[^]]*\]", "[]", path)
    return next((f"{prefix}[]" for prefix in maps if path.startswith(f"{prefix}.")), path)


async def attempt(api: Client, table: Table, good: Raw, case: Case) -> None:
    raw, name = table.kind.resource.raw, good["metadata"]["name"]
    namespace = good["metadata"].get("namespace")
    if case.way == "create":
        fresh = scenario_tables.merged(good, {"metadata": {"name": f"bad-{name}"}})
        await api.create(raw, scenario_tables.merged(fresh, case.patch), dry_run=True)
    elif case.way == "change":
        await api.patch(raw, name, case.patch, namespace=namespace, dry_run=True)
    else:
        where = {"namespace": namespace, "subresource": "status", "dry_run": True}
        await api.patch(raw, name, {"status": case.patch}, **where)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
async def test_bad_input_is_refused_with_a_readable_error(api, crds, clean_cluster, namespace, table):
    good = scenario_tables.placed(table.good, table.kind, namespace)
    await scenario_tables.create(api, table.kind, good)

    wrong = []
    for case in table.cases:
        try:
            await attempt(api, table, good, case)
        except Invalid as refusal:
            if not any(at == case.at and case.refused in said for at, said in fields(refusal, table.kind)):
                wrong.append(f"{case.name}: refused with another error: {fields(refusal, table.kind)}")
        else:
            wrong.append(f"{case.name}: accepted")

    assert wrong == []


@pytest.mark.parametrize("kind", KIND.values(), ids=KIND)
def test_every_rule_has_an_invalid_example(kind):
    cases = [case for table in TABLES.values() if table.kind == kind for case in table.cases]

    forgotten = [
        f"{path or 'the object'}: {rule['message']}"
        for path, schema in nodes(schema_of(kind))
        for rule in schema.get(RULES, [])
        if not any(case.at == path and speakers(case, schema) == [rule] for case in cases)
    ]

    assert forgotten == []


def speakers(case: Case, schema: Raw) -> list[Raw]:
    """The rules of a field that can produce the error. A case proves a rule only if there is one."""
    return [rule for rule in schema[RULES] if could_say(case.refused, rule)]


def could_say(fragment: str, rule: Raw) -> bool:
    """Whether the fragment is in the message of the rule or in its message expression."""
    phrases = re.findall(r"'([^']*)'", rule.get("messageExpression", ""))
    spoken = [phrase.strip() for phrase in phrases if " " in phrase.strip()]
    return fragment in rule["message"] or any(phrase in fragment or fragment in phrase for phrase in spoken)


BREAKS: dict[str, tuple[Any, str]] = {
    "enum": (lambda bound: "Nonsense", "Unsupported value"),
    "minimum": (lambda bound: bound - 1, "should be greater than or equal to"),
    "maximum": (lambda bound: bound + 1, "should be less than or equal to"),
    "minLength": (lambda bound: "", "should be at least"),
    "maxLength": (lambda bound: "x" * (bound + 1), "Too long"),
    "minItems": (lambda bound: [], "should have at least"),
    "maxItems": (lambda bound: [None] * (bound + 1), "Too many"),
    "maxProperties": (lambda bound: {f"k{i}": None for i in range(bound + 1)}, "Too many"),
    "format": (lambda bound: "yesterday", "must be of type date-time"),
    "required": (lambda bound: {}, "Required value"),
}
"""Schema keyword to an invalid value and the error of the API server."""


def breaks(schema: Raw) -> Iterator[tuple[str, Any, str, str]]:
    """Path, invalid value, path of the error and error, for every bound of a schema."""
    for path, inner in nodes(schema):
        for word, (spoil, complaint) in BREAKS.items():
            if word not in inner or (word == "format" and inner["format"] != "date-time"):
                continue
            if word == "required":
                prefix = f"{path}." if path else ""
                without = {} if "[]" in path else dict.fromkeys(inner["required"])
                yield from ((path, without, f"{prefix}{name}", complaint) for name in inner["required"])
            else:
                yield path, filled(spoil(inner[word]), inner), path, complaint


def filled(bad: Any, schema: Raw) -> Any:
    """Fill with valid items, because the API server also reports each invalid one."""
    if isinstance(bad, list):
        return [minimal(schema["items"])] * len(bad)
    if isinstance(bad, dict) and "additionalProperties" in schema:
        return dict.fromkeys(bad, minimal(schema["additionalProperties"]))
    return bad


def minimal(schema: Raw) -> Any:
    """The smallest value of the right shape."""
    if schema["type"] == "object":
        return {name: minimal(schema["properties"][name]) for name in schema.get("required", ())}
    if schema["type"] == "integer":
        return schema.get("minimum", 1)
    return schema.get("enum", ["2030-01-31T12:00:00Z" if "format" in schema else "x"])[0]


def at_path(path: str, value: Any, schema: Raw) -> Any:
    """An object with only this value at this path."""
    if not path:
        return value
    if path.startswith("[]"):
        inner = at_path(
            path[2:].removeprefix("."), value, schema.get("items") or schema["additionalProperties"]
        )
        return [inner] if "items" in schema else {"key": inner}
    name = re.split(r"[.\[]", path, maxsplit=1)[0]
    return {name: at_path(path[len(name) :].removeprefix("."), value, schema["properties"][name])}


@pytest.mark.parametrize("kind", KIND.values(), ids=KIND)
async def test_every_bound_of_the_schema_is_enforced(api, crds, clean_cluster, namespace, kind):
    """One invalid value for each enum, bound, size, time and required field, derived from the schema."""
    table = next(table for table in TABLES.values() if table.kind == kind)
    good = scenario_tables.placed(table.good, kind, namespace)
    await scenario_tables.create(api, kind, good)

    schema = schema_of(kind)
    wrong = []
    for path, bad, place, complaint in breaks(schema):
        case = case_of(path, at_path(path, bad, schema), place, complaint)
        try:
            await attempt(api, table, good, case)
        except Invalid as refusal:
            if not any(at == place and complaint in said for at, said in fields(refusal, table.kind)):
                wrong.append(f"{place}: {complaint!r} expected, but {fields(refusal, table.kind)}")
        else:
            wrong.append(f"{place}: {str(bad)[:60]} accepted")

    assert wrong == []


def case_of(path: str, body: Raw, place: str, complaint: str) -> Case:
    if path.startswith("status"):
        return Case(place, "status", body["status"], place, complaint)
    return Case(place, "create", body, place, complaint)
