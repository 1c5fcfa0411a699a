"""Every setting in one line, for the reference page and the command line."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from croupier.api import schema
from croupier.api.settings import Configuration

HEAD: Final = """# Settings

One tree, in a file, in the ConfigMap `croupier-settings`, in the ModuleConfig `gpu-operator`,
or under `settings` in the values of the chart.
`croupier settings check -f FILE` lists every error by its path. Whatever is left out is as the default says.

| setting | default | allowed | takes effect | what it does |
|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Row:
    path: str
    default: str
    allowed: str
    takes_effect: str
    says: str


def page() -> str:
    cells = (
        (f"`{row.path}`", row.default and f"`{row.default}`", row.allowed, row.takes_effect, row.says)
        for row in rows()
    )
    lines = ("| " + " | ".join(part.replace("|", "\\|") for part in line) + " |\n" for line in cells)
    return HEAD + "".join(lines)


def rows() -> list[Row]:
    return list(_rows("", schema.of(Configuration)))


def _rows(path: str, node: schema.Schema) -> Iterator[Row]:
    for name, one in node.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        if one["type"] == "object" and name != "selector":
            yield from _rows(here, one)
        else:
            yield Row(here, _default(one), _allowed(one), _when(one), one.get("description", ""))


def _default(node: schema.Schema) -> str:
    value = node.get("default")
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _allowed(node: schema.Schema) -> str:
    if "enum" in node:
        return ", ".join(node["enum"])
    if "x-example" in node:
        return f"such as {node['x-example']}"
    if "maximum" in node:
        return f"{node['minimum']} to {node['maximum']}"
    return {"boolean": "true, false", "object": "a label selector"}.get(node["type"], "text")


def _when(node: schema.Schema) -> str:
    return "at the next start" if node.get("x-restarts") else "at once"
