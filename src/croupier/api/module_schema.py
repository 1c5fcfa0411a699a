"""The OpenAPI schemas of the settings as a Deckhouse module ships them.

Deckhouse validates `spec.settings` of the ModuleConfig by `openapi/config-values.yaml`, fills in its
defaults, and shows its descriptions and examples in the documentation of the module. `openapi/values.yaml`
extends it.
"""

from collections.abc import Callable
from typing import Any, Final

from croupier.api import settings_check
from croupier.api.schema import Schema, example

VERSION: Final = 1
"""`spec.version` of the ModuleConfig."""
_RESTARTS: Final = "A change takes effect when the processes restart."


def config_values() -> Schema:
    return {"x-config-version": VERSION, **_converted(settings_check.strict())}


def values() -> Schema:
    """There are no internal values: the processes compute everything themselves."""
    return {"x-extend": {"schema": "config-values.yaml"}, "type": "object", "properties": {}}


def _converted(node: Schema) -> Schema:
    """Keywords of Kubernetes are removed, and Croupier's own ones take their form in Deckhouse."""
    kept = {keyword: value for keyword, value in node.items() if not keyword.startswith("x-")}
    kept |= {keyword: convert(kept[keyword]) for keyword, convert in _NESTED.items() if keyword in kept}
    if (value := example(node)) is not None:
        kept["x-examples"] = [value]
    if node.get("x-restarts"):
        kept["description"] = f"{node['description']} {_RESTARTS}"
    return kept


def _converted_all(nodes: dict[str, Schema]) -> dict[str, Schema]:
    return {name: _converted(node) for name, node in nodes.items()}


def _converted_if_schema(node: Any) -> Any:
    return _converted(node) if isinstance(node, dict) else node


_NESTED: Final[dict[str, Callable[[Any], Any]]] = {
    "properties": _converted_all,
    "items": _converted,
    "additionalProperties": _converted_if_schema,
}
