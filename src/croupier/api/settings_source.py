"""Documents that contain settings: a plain document, a ConfigMap, a ModuleConfig, or values of the chart."""

from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import yaml

from croupier.api import chart_values, settings_check
from croupier.api.settings_check import Problem
from croupier.api.yaml_errors import INVALID_SCALARS

DocumentKind: TypeAlias = Literal["settings", "values", "ConfigMap", "ModuleConfig"]

MODULE_CONFIG: Final = "gpu-operator"
"""The name of Croupier's ModuleConfig."""
CONFIG_MAP: Final = "croupier-settings"
CONFIG_MAP_KEY: Final = "settings.yaml"
"""The key of the ConfigMap that contains the settings."""
MAX_SHOWN: Final = 60
"""Characters of a foreign word in a message."""
MAX_ERROR: Final = 300
"""Characters of an error of the YAML parser."""
DOCUMENT_KINDS: Final[dict[DocumentKind, str]] = {
    "settings": "plain settings (the whole document)",
    "values": "values of the chart (settings are under `settings`)",
    "ConfigMap": f"a ConfigMap (settings are under the key `{CONFIG_MAP_KEY}`)",
    "ModuleConfig": "a ModuleConfig (settings are under `spec.settings`)",
}
"""Every kind of document that can contain settings, and where in it they are."""


def kind_of(document: Any) -> DocumentKind:
    """The kind of the document, from `kind` or its top-level keys. ValueError if it cannot have settings."""
    if not isinstance(document, dict):
        return "settings"
    match document.get("kind"):
        case "ConfigMap":
            return "ConfigMap"
        case "ModuleConfig":
            return "ModuleConfig"
        case None:
            return "values" if _has_chart_keys(document) else "settings"
        case kind:
            shown = " ".join(str(kind)[:MAX_SHOWN].split())
            raise ValueError(
                f"a {shown} cannot contain settings; use one of: {', '.join(DOCUMENT_KINDS.values())}"
            )


def settings_in(document: Any) -> Any:
    """The settings in the document, not validated. ValueError if the document lacks them."""
    if document is None:
        return {}
    match kind_of(document):
        case "ConfigMap":
            return _from_config_map(document)
        case "ModuleConfig":
            return _mapping(document, "spec").get("settings") or {}
        case "values":
            return document.get("settings") or {}
        case "settings":
            return document


def problems(document: Any) -> list[Problem]:
    """Every error in the settings of the document, by path."""
    invalid = settings_check.problems(settings_in(document))
    return sorted([*invalid, *_misplaced_keys(document)]) if kind_of(document) == "values" else invalid


def is_enabled(document: Any) -> bool:
    """Whether the installation is enabled. Only a ModuleConfig can disable it."""
    if not isinstance(document, dict) or document.get("kind") != "ModuleConfig":
        return True
    return _mapping(document, "spec").get("enabled") is not False


def parse(text: str) -> Any:
    """The document of a YAML text. ValueError says in one line why it is none."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())[:MAX_ERROR]) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except INVALID_SCALARS as error:
        raise ValueError("it has unsupported numbers, dates or keys") from error


def _mapping(document: dict[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key) or {}
    if not isinstance(value, dict):
        raise ValueError(f"{key} of a {document['kind']} must be a mapping")
    return value


def _has_chart_keys(document: dict[str, Any]) -> bool:
    """Whether a top-level key exists only in the chart's values. `monitoring` exists in both."""
    return bool(set(document) & (chart_values.top_level_keys() - set(settings_check.strict()["properties"])))


def _misplaced_keys(values: dict[str, Any]) -> Iterator[Problem]:
    """Errors for top-level keys of the values that are misplaced or unknown."""
    for name in sorted(set(map(str, values)) - chart_values.top_level_keys()):
        if name in settings_check.strict()["properties"]:
            yield Problem(name, f"in values of the chart this setting is settings.{name}")
        else:
            known = ", ".join(sorted(chart_values.top_level_keys()))
            yield Problem(name, f"the chart has no such value; valid names here are {known}")


def _from_config_map(document: dict[str, Any]) -> Any:
    text = _mapping(document, "data").get(CONFIG_MAP_KEY)
    if text is None:
        raise ValueError(f"the ConfigMap has no key {CONFIG_MAP_KEY}, which must contain the settings")
    if not isinstance(text, str):
        raise ValueError(f"key {CONFIG_MAP_KEY} of the ConfigMap must be text that contains the settings")
    try:
        return parse(text) or {}
    except ValueError as error:
        raise ValueError(f"key {CONFIG_MAP_KEY} of the ConfigMap is not valid YAML: {error}") from error
