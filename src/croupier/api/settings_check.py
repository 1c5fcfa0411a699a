"""Validation of settings: all errors at once, each with its path and the allowed values."""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from croupier.api import schema
from croupier.api.settings import Configuration

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

_TYPE_NAMES: Final = {
    "boolean": "true or false",
    "integer": "a whole number",
    "string": "text",
    "object": "a group of settings",
    "array": "a list",
}


MAX_PATH: Final = 200
"""Characters of a path in a message."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    path: str
    sentence: str

    def __str__(self) -> str:
        where = " ".join(self.path.split())[:MAX_PATH]  # a foreign name may be long, and Events are not
        return f"{where or 'settings'}: {self.sentence}"


def problems(data: Any) -> list[Problem]:
    """Every error in the settings, sorted by path. Empty if they are valid."""
    if invalid_keys := sorted(_invalid_keys("", data)):
        return invalid_keys
    invalid = [problem for error in _validator().iter_errors(data) for problem in _problems_in(error)]
    return sorted({*invalid, *_contradictions(data if isinstance(data, dict) else {})})


def _invalid_keys(path: str, data: Any) -> Iterator[Problem]:
    """YAML keys such as 5, true or a date: JSON, and so the schema, has only text."""
    if isinstance(data, dict):
        for key, value in data.items():
            if not isinstance(key, str):
                yield Problem(path, f"the key {_quoted(key)} is not text; write it in quotes")
            yield from _invalid_keys(f"{path}.{_shown_key(key)}".lstrip("."), value)
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _invalid_keys(f"{path}.{index}".lstrip("."), value)


@cache
def strict() -> schema.Schema:
    """The schema of the settings without unknown fields."""
    return _without_unknown_fields(schema.struct_schema(Configuration))


def _without_unknown_fields(node: schema.Schema) -> schema.Schema:
    properties = {name: _without_unknown_fields(child) for name, child in node.get("properties", {}).items()}
    kept = {keyword: value for keyword, value in node.items() if not keyword.startswith("x-kubernetes")}
    if not properties:
        return kept
    return {**kept, "properties": properties, "additionalProperties": False}


@cache
def _validator() -> "Draft202012Validator":
    from jsonschema import Draft202012Validator  # noqa: PLC0415 (only documents need it)

    return Draft202012Validator(strict())


def _problems_in(error: "ValidationError") -> Iterator[Problem]:
    path = ".".join(str(step) for step in error.absolute_path)
    node: Any = error.schema
    value: Any = error.instance
    allowed: Any = error.validator_value
    match error.validator:
        case "additionalProperties":
            known = list(node["properties"])
            for name in sorted(set(value) - set(known)):
                yield Problem(f"{path}.{name}".lstrip("."), _unknown_name(name, known))
        case "required":
            yield Problem(path, f"{error.message.split(' ')[0]} is missing")
        case "enum":
            yield Problem(path, f"{_quoted(value)} is not one of {', '.join(allowed)}")
        case "pattern":
            example = schema.example(node)
            format_ = f"must have a format such as {example}" if example else "has an invalid format"
            yield Problem(path, f"{_quoted(value)} {format_}")
        case "type":
            kind = _TYPE_NAMES.get(allowed, str(allowed))
            yield Problem(path, f"{_quoted(value)} must be {kind}")
        case "minimum" | "maximum" | "minLength" | "maxLength" | "maxItems" | "maxProperties":
            yield Problem(path, f"{_quoted(value)} is out of range: {_range(node)}")
        case _:
            yield Problem(path, " ".join(error.message.split())[:MAX_PATH])


def _unknown_name(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"there is no such setting; {hint}valid names here are {', '.join(known)}"


def _shown_key(key: Any) -> str:
    return str(key)[:60]


def _quoted(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _range(node: schema.Schema) -> str:
    low, high = node.get("minimum", node.get("minLength", 0)), node.get("maximum", node.get("maxLength"))
    unit = " characters" if "maxLength" in node else ""
    return f"{low} to {high}{unit}" if high is not None else f"{low} or more{unit}"


def _contradictions(data: dict[str, Any]) -> Iterator[Problem]:
    """Errors in the combination of settings that are valid alone."""
    approval = data.get("deviceApproval")
    if isinstance(approval, dict) and approval.get("mode") == "Selector" and not approval.get("selector"):
        yield Problem(
            "deviceApproval.selector", "mode Selector needs a selector; without one no card would join a pool"
        )
    if data.get("highAvailability") is True and data.get("capacityManager") == "InMemory":
        yield Problem(
            "capacityManager",
            "highAvailability requires the ledger in NodeReservations: leave this out or set it to CRD",
        )


def restart_paths(before: Configuration, after: Configuration) -> list[str]:
    """The paths of changes that take effect only after a restart."""
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    return sorted(_restart_paths("", schema.struct_schema(Configuration), old, new))


def _restart_paths(path: str, node: schema.Schema, old: Any, new: Any) -> Iterator[str]:
    if old == new:
        return
    if node.get("x-restarts"):
        yield path
        return
    for name, child in node.get("properties", {}).items():
        before = (old or {}).get(name, child.get("default"))
        after = (new or {}).get(name, child.get("default"))
        yield from _restart_paths(f"{path}.{name}".lstrip("."), child, before, after)
