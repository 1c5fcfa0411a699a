"""Every field of the kinds and of the settings has a description with a valid example."""

import ast
import json
import re
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator
from msgspec import Meta

from croupier.api import chart_values, schema
from croupier.api.settings import Configuration
from croupier.api.wire import Wire, example
from tests.api.scenario_tables import KIND
from tests.api.test_bad_input import nodes, schema_of

Schema = dict[str, Any]

SETTINGS = schema.struct_schema(Configuration)
DESCRIBED = {name: schema_of(kind) for name, kind in KIND.items()} | {
    "settings": schema.with_examples(SETTINGS)
}
DECLARED = {name: schema.struct_schema(kind.resource.type) for name, kind in KIND.items()} | {
    "settings": SETTINGS
}
"""The schemas with the examples as data."""
PATTERN = re.compile(r"self\.matches\(('(?:[^'\\]|\\.)*')\)")


class Sample(Wire, frozen=True, kw_only=True):
    """A sample."""

    number: Annotated[int, example(0)] = 3
    """A number."""
    flag: bool = False
    """Whether it is set."""
    names: tuple[Annotated[str, Meta(max_length=9), example("a")], ...] = ()
    """Names."""
    amounts: Annotated[dict[str, int], example({"a": 1})] = {}  # noqa: RUF012  # a field of a Struct
    """Amounts by name."""


def is_leaf(node: Schema) -> bool:
    """Whether `kubectl explain` shows no fields below."""
    inner = node.get("items") or node.get("additionalProperties") or node
    return isinstance(inner, dict) and inner["type"] != "object"


def leaves(root: Schema) -> Iterator[tuple[str, Schema]]:
    return ((path, node) for path, node in nodes(root) if is_leaf(node) and not path.endswith("[]"))


def said(node: Schema) -> str:
    """The description without the example."""
    return str(node.get("description", "")).partition(" Example: ")[0]


@pytest.mark.parametrize("root", DESCRIBED.values(), ids=DESCRIBED)
def test_every_field_is_explained_by_sentences(root):
    wrong = [
        f"{path}: {said(node)}"
        for path, node in nodes(root)
        if path and not path.endswith("[]") and path != "metadata"
        if not re.fullmatch(r"[A-Z].*\.", said(node), re.DOTALL)
    ]

    assert wrong == []


@pytest.mark.parametrize("root", DESCRIBED.values(), ids=DESCRIBED)
def test_every_field_has_an_example(root):
    silent = [path for path, node in leaves(root) if not re.search(r" Example: .+\.$", node["description"])]

    assert silent == []


@pytest.mark.parametrize("root", DESCRIBED.values(), ids=DESCRIBED)
def test_every_allowed_value_is_explained(root):
    silent = [
        f"{path}: {value}"
        for path, node in leaves(root)
        for value in node.get("enum", ())
        if not re.search(rf"\b{value}\b", said(node))
    ]

    assert silent == []


@pytest.mark.parametrize("root", DECLARED.values(), ids=DECLARED)
def test_examples_are_valid_values(root):
    wrong = [
        f"{path}: {value}: {problem}"
        for path, node in nodes(root)
        if (value := schema.example(node)) is not None
        for problem in problems(node, value)
    ]

    assert wrong == []


def problems(node: Schema, value: Any) -> Iterator[str]:
    """Why the API server would refuse the value: bounds, enums, and the patterns of the CEL rules."""
    plain = json.loads(json.dumps(value))
    yield from (error.message for error in Draft202012Validator(node).iter_errors(plain))
    if isinstance(plain, list):
        yield from (problem for item in plain for problem in problems(node["items"], item))
    elif isinstance(plain, dict):
        yield from (
            problem for item in plain.values() for problem in problems(node["additionalProperties"], item)
        )
    for rule in node.get(schema.CEL_RULES, ()) if isinstance(plain, str) else ():
        for literal in PATTERN.findall(rule["rule"]):
            if not re.search(ast.literal_eval(literal), plain):
                yield rule["message"]


def test_an_example_of_another_form_is_found():
    node = {"type": "string", schema.CEL_RULES: [{"rule": "self.matches('^[a-z]+$')", "message": "letters"}]}

    assert list(problems(node, "1")) == ["letters"]
    assert list(problems({"type": "integer", "maximum": 3}, 4)) == ["4 is greater than the maximum of 3"]


def test_the_example_is_the_last_sentence():
    made = schema.with_examples(schema.struct_schema(Sample))["properties"]

    assert {name: node["description"] for name, node in made.items()} == {
        "number": "A number. Example: 0.",
        "flag": "Whether it is set. Example: true.",
        "names": 'Names. Example: ["a"].',
        "amounts": 'Amounts by name. Example: {"a": 1}.',
    }
    assert schema.EXAMPLE not in json.dumps(made)


def test_the_values_of_the_chart_have_the_examples_of_the_settings():
    settings = chart_values.document()["properties"]["settings"]["properties"]

    assert settings["reservation"]["properties"]["ttl"]["description"].endswith(" Example: 90s.")
