"""The objects of the chart, rendered by helm."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier_lab import binaries
from croupier_lab.binaries import BinarySources
from tools import chart

ROOT = Path(__file__).resolve().parents[2]
HIGHLY_AVAILABLE = "--set=settings.highAvailability=true"
NODE_FEATURE_RULES = "--api-versions=nfd.k8s-sigs.io/v1alpha1/NodeFeatureRule"


def helm() -> Path:
    binary = binaries.search(["helm"], BinarySources()).found.get("helm")
    if binary is None:
        pytest.skip("needs helm: run `croupier lab build --helm` once")
    return binary.path


@cache
def objects(*options: str) -> list[dict[str, Any]]:
    """Rendered objects; cached, so do not modify them."""
    helm()
    return [document for document in yaml.safe_load_all(chart.rendered(ROOT, *options)) if document]


def of_kind(found: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [item for item in found if item["kind"] in kinds]


def named(found: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (only,) = (item for item in of_kind(found, kind) if item["metadata"]["name"] == name)
    return only


def pods(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Pod templates by the name of their Deployment or DaemonSet."""
    return {
        item["metadata"]["name"]: item["spec"]["template"]
        for item in of_kind(found, "Deployment", "DaemonSet")
    }
