"""Where settings stand: in a plain document, a ConfigMap, a ModuleConfig, or the values of the chart."""

from typing import Any, Final

import yaml

MODULE: Final = "gpu-operator"
"""The name of our ModuleConfig."""
CONFIG_MAP: Final = "croupier-settings"
KEY: Final = "settings.yaml"
"""The key of the ConfigMap under which they stand."""


def settings_in(document: Any) -> Any:
    """The tree of settings, unchecked. ValueError says what a document lacks that should have them."""
    if document is None:
        return {}
    if not isinstance(document, dict):
        return document
    match document.get("kind"):
        case "ConfigMap":
            return _of_config_map(document)
        case "ModuleConfig":
            return (document.get("spec") or {}).get("settings") or {}
        case None:
            values = document.get("settings")
            return values if isinstance(values, dict) and set(document) & {"image", "settings"} else document
        case kind:
            raise ValueError(f"a {kind} carries no settings; a ConfigMap or a ModuleConfig does")


def is_enabled(document: Any) -> bool:
    """What a ModuleConfig says of the whole installation; everything else means yes."""
    if not isinstance(document, dict) or document.get("kind") != "ModuleConfig":
        return True
    return (document.get("spec") or {}).get("enabled") is not False


def _of_config_map(document: dict[str, Any]) -> Any:
    text = (document.get("data") or {}).get(KEY)
    if text is None:
        raise ValueError(f"the ConfigMap has no key {KEY}, under which settings stand")
    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as bad:
        raise ValueError(f"key {KEY} of the ConfigMap is no YAML: {' '.join(str(bad).split())}") from bad
