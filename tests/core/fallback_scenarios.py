"""Loads scenarios/fallback: the cluster, the pods, and the expected results.

The scenarios run as pure functions and on a real cluster.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from croupier.core import quantity
from croupier.core.fallbacks import policy as fallback_policy
from croupier.core.fallbacks.policy import FallbackPolicy

FOLDER = Path(__file__).resolve().parents[2] / "scenarios/fallback"
IMAGE = "any"

_SETTINGS = {
    "direction": "direction",
    "minMemory": "min_memory",
    "preferAvailable": "prefer_available",
    "quantities": "quantities",
    "whenNothingFits": "when_nothing_fits",
}

Amounts = Mapping[str, int]
"""Amounts by resource."""


@dataclass(frozen=True)
class ExpectedResult:
    asks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Card resources by container, as requests and limits; containers without cards are left out."""
    annotation: str | None = None
    warning: str | None = None
    refused: str | None = None


@dataclass(frozen=True)
class PodCase:
    """One pod and its expected result."""

    name: str
    pod: dict[str, Any]
    """A complete Pod, except for its namespace."""
    ending: ExpectedResult


@dataclass(frozen=True)
class FallbackCase:
    nodes: Mapping[str, Amounts]
    """Allocatable of every node."""
    taken: Mapping[str, Amounts]
    """Resources of running pods, by node."""
    parts: tuple[PodCase, ...]


@dataclass(frozen=True)
class FallbackScenario:
    name: str
    policy: FallbackPolicy
    acts: tuple[FallbackCase, ...]


def scenarios() -> dict[str, FallbackScenario]:
    return {path.stem: _scenario(path) for path in sorted(FOLDER.glob("*.yaml"))}


def _scenario(path: Path) -> FallbackScenario:
    document = yaml.safe_load(path.read_text())
    acts = document.pop("acts", None) or [
        {key: document.pop(key) for key in ("nodes", "taken", "pods") if key in document}
    ]
    policy = _policy(document.pop("policy", {}))
    assert not document, f"{path.name}: unknown keys {', '.join(document)}"
    return FallbackScenario(path.stem, policy, tuple(_cases(acts)))


def _cases(documents: list[dict[str, Any]]) -> Iterator[FallbackCase]:
    nodes: Mapping[str, Amounts] = {}
    for act in documents:
        nodes = act.get("nodes", nodes)
        yield FallbackCase(nodes, act.get("taken", {}), tuple(_pod_case(pod) for pod in act["pods"]))


def _policy(settings: dict[str, Any]) -> FallbackPolicy:
    named = {_SETTINGS[key]: value for key, value in settings.items()}
    if "min_memory" in named:
        named["min_memory"] = fallback_policy.memory(named["min_memory"])
    return FallbackPolicy(**named)


def _pod_case(document: dict[str, Any]) -> PodCase:
    ending, body = document["ending"], document["pod"]
    asks = {
        container: {name: str(quantity.parse(str(amount))) for name, amount in amounts.items()}
        for container, amounts in ending.get("asks", {}).items()
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": body["metadata"], "spec": _spec(body)}
    return PodCase(document["name"], pod, ExpectedResult(**{**ending, "asks": asks}))


def _spec(pod: dict[str, Any]) -> dict[str, Any]:
    return {
        key: [{"image": IMAGE, **container} for container in value]
        if key.lower().endswith("containers")
        else value
        for key, value in pod["spec"].items()
    }
