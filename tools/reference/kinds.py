"""Every field of every kind, from the CustomResourceDefinitions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from croupier.api import crds
from croupier.api.crds import CustomResource
from croupier.api.schema import CEL_RULES, Schema
from tools.reference import markdown

HEAD: Final = """# Kinds

Generated from the Structs in src/croupier/api, like the CustomResourceDefinitions.
`kubectl explain` prints the same descriptions.
`[]` stands for each item of a list, `<name>` for any key of a map.

"""
OURS: Final = ("apiVersion", "kind", "metadata")
"""Fields of every Kubernetes object; not listed."""


@dataclass(frozen=True, slots=True)
class Field:
    path: str
    type: str
    note: str
    says: str


def page() -> str:
    definitions = [(kind, crds.definition(kind)) for kind in crds.KINDS]
    return HEAD + "\n".join(_section(kind, made["spec"]) for kind, made in definitions)


def fields(kind: CustomResource) -> list[Field]:
    root = crds.definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    own = {name: node for name, node in root["properties"].items() if name not in OURS}
    return list(_fields("", {**root, "properties": own}))


def _section(kind: CustomResource, spec: Schema) -> str:
    (version,) = spec["versions"]
    root = version["schema"]["openAPIV3Schema"]
    names = ", ".join(markdown.code(name) for name in (spec["names"]["plural"], *kind.short))
    scope = "cluster-scoped" if spec["scope"] == "Cluster" else "namespaced"
    rows = [(markdown.code(field.path), field.type, field.note, field.says) for field in fields(kind)]
    parts = [
        f"## {kind.resource.kind}\n",
        f"`{kind.resource.group}/{kind.resource.version}`, {scope}. Names in kubectl: {names}.\n",
        f"{root.get('description', '')}\n",
        markdown.table(("field", "type", "allowed, default", "description"), rows),
    ]
    if rules := dict.fromkeys(rule.get("message", rule["rule"]) for rule in _rules(root)):
        parts += ["Validation rules of the API server:\n", "".join(f"- {rule}\n" for rule in rules)]
    if kind.selectable:
        selectors = ", ".join(markdown.code(path.lstrip(".")) for path in kind.selectable)
        parts.append(f"Field selectors: {selectors}.\n")
    return "\n".join(parts)


def _fields(path: str, node: Schema) -> Iterator[Field]:
    required = node.get("required", ())
    for name, child in node.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        yield Field(here, _type(child), _note(child, name in required), child.get("description", ""))
        yield from _below(here, child)


def _below(path: str, node: Schema) -> Iterator[Field]:
    match node:
        case {"items": inner}:
            yield from _fields(f"{path}[]", inner)
        case {"additionalProperties": dict(inner)}:
            yield from _fields(f"{path}.<name>", inner)
        case _:
            yield from _fields(path, node)


def _type(node: Schema) -> str:
    match node:
        case {"type": "array", "items": inner}:
            return f"list of {_type(inner)}"
        case {"additionalProperties": dict(inner)}:
            return f"map to {_type(inner)}"
        case {"format": "date-time"}:
            return "time"
    return str(node.get("type", "integer or string"))


def _note(node: Schema, required: bool) -> str:
    notes = ["required"] if required else []
    if "enum" in node:
        notes.append(", ".join(map(str, node["enum"])))
    if "minimum" in node or "maximum" in node:
        notes.append(_range(node))
    if (default := node.get("default")) is not None and not isinstance(default, dict):
        notes.append(f"default {_spelled(default)}")
    return "; ".join(notes)


def _range(node: Schema) -> str:
    least, most = node.get("minimum"), node.get("maximum")
    if most is None:
        return f"at least {least}"
    return f"{least} to {most}" if least is not None else f"at most {most}"


def _spelled(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rules(node: Schema) -> Iterator[Schema]:
    yield from node.get(CEL_RULES, ())
    children = [*node.get("properties", {}).values(), node.get("items"), node.get("additionalProperties")]
    for child in children:
        if isinstance(child, dict):
            yield from _rules(child)
