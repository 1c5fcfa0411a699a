"""A table of all settings for the reference page and the command line."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from croupier.api import schema
from croupier.api.settings import Configuration

PAGE_HEAD: Final = """# Settings

The settings are one YAML tree. It is in a file, in the ConfigMap `croupier-settings`, in the ModuleConfig
`gpu-operator`, or under `settings` in the values of the chart.
`croupier settings check -f FILE` lists every error with its path. A setting that is left out has its default.

| setting | default | allowed | takes effect | description |
|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class SettingRow:
    path: str
    default: str
    allowed: str
    takes_effect: str
    description: str


def page() -> str:
    cells = (
        (f"`{row.path}`", row.default and f"`{row.default}`", row.allowed, row.takes_effect, row.description)
        for row in rows()
    )
    lines = ("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in cells)
    return PAGE_HEAD + "".join(lines)


def rows() -> list[SettingRow]:
    return list(_rows("", schema.struct_schema(Configuration)))


def _rows(path: str, node: schema.Schema) -> Iterator[SettingRow]:
    for name, child in node.get("properties", {}).items():
        child_path = f"{path}.{name}".lstrip(".")
        if child["type"] == "object" and name != "selector":
            yield from _rows(child_path, child)
        else:
            description = child.get("description", "")
            yield SettingRow(child_path, _default(child), _allowed(child), _takes_effect(child), description)


def _default(node: schema.Schema) -> str:
    value = node.get("default")
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(node: schema.Schema) -> str:
    if "enum" in node:
        return ", ".join(node["enum"])
    if "maximum" in node:
        return f"{node['minimum']} to {node['maximum']}"
    if node["type"] == "string":
        return f"such as {schema.example(node)}"
    return {"boolean": "true, false", "object": "a label selector"}[node["type"]]


def _takes_effect(node: schema.Schema) -> str:
    return "after a restart" if node.get("x-restarts") else "immediately"
