"""The JSON schema of the chart's values. `settings` comes from the settings Structs.

Helm validates values before it renders templates, so a misspelt value is an error and is not ignored.
"""

from functools import cache
from typing import Any, Final

from croupier.api import schema, settings_check

JSON_SCHEMA_DRAFT: Final = "http://json-schema.org/draft-07/schema#"

_TEXT: Final = {"type": "string"}
_IMAGE: Final = {"type": "string", "pattern": "^[A-Za-z0-9./:@_-]*$"}
_FLAG: Final = {"type": "boolean"}
_ANY: Final = {"type": "object"}
_OBJECTS: Final = {"type": "array", "items": _ANY}
_PORT: Final = {"type": "integer", "minimum": 1, "maximum": 65535}
_CIDR: Final = {"type": "string", "pattern": "^[0-9a-fA-F.:]+/[0-9]{1,3}$"}
_REPLICAS: Final = {"type": "integer", "minimum": 1}
_REPLICATED: Final = ("inventory", "bootstrap", "pools", "limits", "ledger", "webhook", "extender")
"""The processes whose replicas are in `replicas`."""
_TEXTS: Final = {"type": "object", "additionalProperties": _TEXT}
_SECONDS: Final = {"type": "number", "exclusiveMinimum": 0, "maximum": 3600}


def document() -> schema.Schema:
    """The chart's values.schema.json."""
    return {"$schema": JSON_SCHEMA_DRAFT, "title": "Values of the chart croupier", **_group(**_values())}


@cache
def top_level_keys() -> frozenset[str]:
    """The top-level keys of the chart's values."""
    return frozenset(_values())


def _values() -> dict[str, Any]:
    image = {"repository": {"type": "string", "minLength": 1}, "tag": _TEXT}
    placed = {"affinity": _ANY, "nodeSelector": _ANY, "tolerations": _OBJECTS, "priorityClassName": _TEXT}
    return {
        "global": _ANY,
        "image": _group(**image, pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]}),
        "imagePullSecrets": _OBJECTS,
        "replicas": _group(**dict.fromkeys(_REPLICATED, _REPLICAS)),
        "settings": _settings(),
        "settingsFrom": {"enum": ["configmap", "module"]},
        "apiServer": _group(host=_TEXT, port=_PORT),
        "hostAliases": _OBJECTS,
        "crds": _group(install=_FLAG, keep=_FLAG),
        "namespace": _group(create=_FLAG),
        "scheduler": _group(enabled=_FLAG, image=_group(**image)),
        "extender": _group(tlsSecret=_TEXT),
        "webhook": _group(
            certManager=_group(enabled=_FLAG, issuer=_group(kind=_TEXT, name=_TEXT)),
            clientCASecret=_TEXT,
            clientNames={"type": "array", "items": _TEXT},
        ),
        "node": _group(**_node(), **placed),
        "market": _group(**_market(), **placed),
        "ui": _group(**_ui()),
        "bootstrap": _group(gfdImage=_IMAGE, dcgmExporterImage=_IMAGE, runtimeClassName=_TEXT),
        "resources": {"type": "object", "additionalProperties": _ANY, "required": ["default"]},
        "podLabels": _TEXTS,
        "podAnnotations": _TEXTS,
        "podSecurityContext": _ANY,
        "securityContext": _ANY,
        **placed,
        "podDisruptionBudget": _group(enabled=_FLAG),
        "networkPolicy": _group(**_network()),
        "monitoring": _ANY,
        "nodeFeatureRule": _group(enabled=_FLAG),
    }


def _network() -> dict[str, Any]:
    peers = dict.fromkeys(("apiServerPeers", "metricsFrom", "extenderFrom", "uiFrom"), _OBJECTS)
    return {
        "enabled": _FLAG,
        "apiServerPorts": {"type": "array", "items": _PORT},
        "apiServerCIDRs": {"type": "array", "items": _CIDR},
        **peers,
    }


def _node() -> dict[str, Any]:
    return {
        "enabled": _FLAG,
        "cards": {"type": "string", "pattern": "^(nvml|simulated=.+)$"},
        "kubeletDir": {"type": "string", "pattern": "^/"},
        "stateDir": {"type": "string", "pattern": "^/"},
        "mps": _group(
            enabled=_FLAG,
            dir={"type": "string", "pattern": "^/"},
            staticPartitions=_FLAG,
            securityContext=_ANY,
        ),
        "securityContext": _ANY,
        "hamiCoreDir": {"type": "string", "pattern": "^(/.+)?$"},
        "cdiDir": {"type": "string", "pattern": "^(/.+)?$"},
        "runtimeClassName": _TEXT,
    }


def _market() -> dict[str, Any]:
    return {
        "enabled": _FLAG,
        "dryRun": _FLAG,
        "strict": _FLAG,
        "target": {"type": "integer", "minimum": 1, "maximum": 100},
        "raiseAfter": _SECONDS,
        "lowerAfter": _SECONDS,
        "keepPeaks": _SECONDS,
        "keepLatencyPeaks": _SECONDS,
        "cgroupDir": _TEXT,
        "cgroupRoot": _TEXT,
    }


def _ui() -> dict[str, Any]:
    ingress = {"enabled": _FLAG, "className": _TEXT, "host": _TEXT, "annotations": _ANY, "tlsSecret": _TEXT}
    actions = {"enum": ["cards", "pools", "reservations"]}
    return {
        "enabled": _FLAG,
        "replicas": _REPLICAS,
        "mode": {"enum": ["bearer", "token", "headers"]},
        "actions": {"type": "array", "items": actions, "uniqueItems": True},
        "tlsSecret": _TEXT,
        "clientCASecret": _TEXT,
        "sessionKeySecret": _TEXT,
        "ingress": _group(**ingress),
    }


def _settings() -> schema.Schema:
    return {
        **_without_extensions(schema.with_examples(settings_check.strict())),
        "description": "Settings of the installation: docs/settings.md.",
    }


def _without_extensions(node: schema.Schema) -> schema.Schema:
    """The schema without the `x-` keywords, which only `settings_check` uses."""
    kept = {keyword: value for keyword, value in node.items() if not keyword.startswith("x-")}
    if "properties" in kept:
        kept["properties"] = {name: _without_extensions(child) for name, child in kept["properties"].items()}
    return kept


def _group(**properties: Any) -> schema.Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}
