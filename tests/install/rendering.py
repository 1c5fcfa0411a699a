"""The chart as Helm renders it, as objects."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.lab import binaries
from croupier.lab.binaries import Sources
from croupier.wiring import chart

ROOT = Path(__file__).resolve().parents[2]
HIGHLY_AVAILABLE = "--set=settings.highAvailability=true"
NODE_FEATURE_RULES = "--api-versions=nfd.k8s-sigs.io/v1alpha1/NodeFeatureRule"


def helm() -> Path:
    found = binaries.search(["helm"], Sources()).found.get("helm")
    if found is None:
        pytest.skip("needs helm: run `croupier lab build --helm` once")
    return found.path


@cache
def objects(*options: str) -> list[dict[str, Any]]:
    """Not to be changed: who asks for the same again gets the same."""
    helm()
    return [one for one in yaml.safe_load_all(chart.rendered(ROOT, *options)) if one]


def of_kind(found: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    return [one for one in found if one["kind"] in kinds]


def named(found: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (only,) = (one for one in of_kind(found, kind) if one["metadata"]["name"] == name)
    return only


def pods(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The pod of every process, by the name of what keeps it."""
    return {
        one["metadata"]["name"]: one["spec"]["template"] for one in of_kind(found, "Deployment", "DaemonSet")
    }
