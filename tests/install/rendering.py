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
ALONE = "--set=settings.highAvailability=false"
IN_MEMORY = "--set=settings.capacityManager=InMemory"
NODE_FEATURE_RULES = "--api-versions=nfd.k8s-sigs.io/v1alpha1/NodeFeatureRule"


def helm() -> Path:
    binary = binaries.search(["helm"], BinarySources()).found.get("helm")
    if binary is None:
        pytest.skip("needs helm: run `croupier lab build --helm` once")
    return binary.path


@cache
def objects(*options: str) -> list[dict[str, Any]]:
    """Rendered objects without those of `helm test`; cached, so do not modify them."""
    return all_objects("--skip-tests", *options)


@cache
def all_objects(*options: str) -> list[dict[str, Any]]:
    helm()
    text = chart.rendered(ROOT, *options)
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


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
