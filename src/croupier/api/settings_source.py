"""Where settings stand: in a plain document, a ConfigMap, a ModuleConfig, or the values of the chart."""

from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import yaml

from croupier.api import chart_values, settings_check
from croupier.api.settings_check import Problem

Kind: TypeAlias = Literal["settings", "values", "ConfigMap", "ModuleConfig"]

MODULE: Final = "gpu-operator"
"""The name of our ModuleConfig."""
CONFIG_MAP: Final = "croupier-settings"
KEY: Final = "settings.yaml"
"""The key of the ConfigMap under which they stand."""
PLACES: Final[dict[Kind, str]] = {
    "settings": "plain settings (the tree itself)",
    "values": "values of the chart (settings stand under `settings`)",
    "ConfigMap": f"a ConfigMap (settings stand under the key `{KEY}`)",
    "ModuleConfig": "a ModuleConfig (settings stand under `spec.settings`)",
}
"""Every kind of document that carries settings, and where in it they stand."""


def kind_of(document: Any) -> Kind:
    """What a document is: by its `kind`, else by the words at its top. ValueError for one that has none."""
    if not isinstance(document, dict):
        return "settings"
    match document.get("kind"):
        case "ConfigMap":
            return "ConfigMap"
        case "ModuleConfig":
            return "ModuleConfig"
        case None:
            return "values" if _is_of_chart(document) else "settings"
        case kind:
            raise ValueError(f"a {kind} carries no settings; these do: {', '.join(PLACES.values())}")


def settings_in(document: Any) -> Any:
    """The tree of settings, unchecked. ValueError says what a document lacks that should have them."""
    if document is None:
        return {}
    match kind_of(document):
        case "ConfigMap":
            return _of_config_map(document)
        case "ModuleConfig":
            return (document.get("spec") or {}).get("settings") or {}
        case "values":
            return document.get("settings") or {}
        case "settings":
            return document


def problems(document: Any) -> list[Problem]:
    """All that is wrong with the settings of a document, wherever they stand, by their path in the tree."""
    found = settings_check.problems(settings_in(document))
    return sorted([*found, *_beside(document)]) if kind_of(document) == "values" else found


def is_enabled(document: Any) -> bool:
    """What a ModuleConfig says of the whole installation; everything else means yes."""
    if not isinstance(document, dict) or document.get("kind") != "ModuleConfig":
        return True
    return (document.get("spec") or {}).get("enabled") is not False


def _is_of_chart(document: dict[str, Any]) -> bool:
    """Whether a word is at the top that only the chart knows; `monitoring` is a word of both."""
    return bool(set(document) & (chart_values.WORDS - set(settings_check.strict()["properties"])))


def _beside(values: dict[str, Any]) -> Iterator[Problem]:
    """What stands at the top of values and belongs elsewhere, or nowhere."""
    for name in sorted(set(map(str, values)) - chart_values.WORDS):
        if name in settings_check.strict()["properties"]:
            yield Problem(name, f"in values of the chart this stands under settings: settings.{name}")
        else:
            known = ", ".join(sorted(chart_values.WORDS))
            yield Problem(name, f"the chart has no such value; here stand {known}")


def _of_config_map(document: dict[str, Any]) -> Any:
    text = (document.get("data") or {}).get(KEY)
    if text is None:
        raise ValueError(f"the ConfigMap has no key {KEY}, under which settings stand")
    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as bad:
        raise ValueError(f"key {KEY} of the ConfigMap is no YAML: {' '.join(str(bad).split())}") from bad
