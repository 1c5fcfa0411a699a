"""The schema of the ModuleConfig's settings has every setting, and refuses what the processes refuse."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft7Validator

from croupier.api import module_schema, settings_check, settings_page
from croupier_lab.cluster import Cluster
from tests.api.test_settings import WRONG
from tests.polling import until_blocking

NAME = "moduleconfigs.schema.example.com"
VALID: dict[str, dict[str, Any]] = {
    "nothing": {},
    "one setting": {"fallback": {"direction": "down", "minMemory": "10Gi"}},
    "a selector": {"deviceApproval": {"mode": "Selector", "selector": {"matchLabels": {"burned-in": "yes"}}}},
}
BY_RULE = ("a selector that is missing", "two contradictory settings")
"""Rules over several settings, which only the processes check."""
INVALID = {name: settings for name, (settings, _) in WRONG.items() if name not in BY_RULE}


def paths(node: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, child in node.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        if "properties" in child and name != "selector":
            yield from paths(child, here)
        else:
            yield here


def test_every_setting_is_in_the_schema():
    schema = module_schema.config_values()

    assert list(paths(schema)) == [row.path for row in settings_page.rows()]
    assert schema["x-config-version"] == module_schema.VERSION
    assert "x-kubernetes" not in json.dumps(schema)


@pytest.mark.parametrize("settings", VALID.values(), ids=VALID)
def test_valid_settings_are_accepted(settings):
    assert settings_check.problems(settings) == []
    assert list(Draft7Validator(module_schema.config_values()).iter_errors(settings)) == []


@pytest.mark.parametrize("settings", INVALID.values(), ids=INVALID)
def test_invalid_settings_are_refused(settings):
    assert settings_check.problems(settings) != []
    assert list(Draft7Validator(module_schema.config_values()).iter_errors(settings)) != []


@pytest.fixture
def modules(cluster: Cluster) -> Iterator[Cluster]:
    """A kind whose spec.settings has the schema, with the fields that an API server can check."""
    spec = {"type": "object", "properties": {"settings": _structural(module_schema.config_values())}}
    names = {"kind": "ModuleConfig", "plural": "moduleconfigs", "singular": "moduleconfig"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }
    kind = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": "schema.example.com",
            "scope": "Cluster",
            "names": names,
            "versions": [version],
        },
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(kind))
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=50s")
    yield cluster
    cluster.kubectl("delete", "crd", NAME)


def _structural(node: Any) -> Any:
    """Without keywords that a CRD does not have."""
    if isinstance(node, list):
        return [_structural(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _structural(value)
        for key, value in node.items()
        if key not in ("x-config-version", "x-examples") and (key, value) != ("additionalProperties", False)
    }


def test_an_api_server_enforces_the_schema_and_fills_in_defaults(modules: Cluster):
    def apply(settings: dict[str, Any]) -> Any:
        about = {"apiVersion": "schema.example.com/v1", "kind": "ModuleConfig"}
        body = {**about, "metadata": {"name": "gpu-operator"}, "spec": {"settings": settings}}
        return modules.kubectl(
            *("apply", "--dry-run=server", "-o", "json", "-f", "-"), stdin=json.dumps(body), check=False
        )

    taken = until_blocking(lambda: apply({}).stdout, "the kind to be served")
    filled = json.loads(taken)["spec"]["settings"]
    assert filled["reservation"]["ttl"] == "120s"
    assert settings_check.problems(filled) == []

    refused = apply({"fallback": {"direction": "sideways"}})
    assert 'spec.settings.fallback.direction: Unsupported value: "sideways"' in refused.stderr
