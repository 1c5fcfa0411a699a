"""The stories in scenarios/fallback as values: the cluster, the pods, what becomes of each.

They are played without a cluster and on a real one, so nothing here knows either.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from croupier.core import quantity
from croupier.core.fallbacks import policy as fallback_policy
from croupier.core.fallbacks.policy import Policy

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
"""Resource to how many."""


@dataclass(frozen=True)
class Ending:
    asks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By container, what requests and limits both are then of cards; one that asks for none is left out."""
    annotation: str | None = None
    warning: str | None = None
    refused: str | None = None


@dataclass(frozen=True)
class Part:
    """One pod and what becomes of it."""

    name: str
    pod: dict[str, Any]
    """A whole Pod, fit for the API server but for its namespace."""
    ending: Ending


@dataclass(frozen=True)
class Act:
    nodes: Mapping[str, Amounts]
    """Allocatable of every node from here on."""
    taken: Mapping[str, Amounts]
    """By node, what running pods hold."""
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Story:
    name: str
    policy: Policy
    acts: tuple[Act, ...]


def stories() -> dict[str, Story]:
    return {path.stem: _story(path) for path in sorted(FOLDER.glob("*.yaml"))}


def _story(path: Path) -> Story:
    told = yaml.safe_load(path.read_text())
    acts = told.pop("acts", None) or [
        {key: told.pop(key) for key in ("nodes", "taken", "pods") if key in told}
    ]
    policy = _policy(told.pop("policy", {}))
    assert not told, f"{path.name}: nobody knows what {', '.join(told)} means"
    return Story(path.stem, policy, tuple(_acts(acts)))


def _acts(told: list[dict[str, Any]]) -> Iterator[Act]:
    nodes: Mapping[str, Amounts] = {}
    for act in told:
        nodes = act.get("nodes", nodes)
        yield Act(nodes, act.get("taken", {}), tuple(_part(one) for one in act["pods"]))


def _policy(settings: dict[str, Any]) -> Policy:
    named = {_SETTINGS[key]: value for key, value in settings.items()}
    if "min_memory" in named:
        named["min_memory"] = fallback_policy.memory(named["min_memory"])
    return Policy(**named)


def _part(told: dict[str, Any]) -> Part:
    ending = told["ending"]
    asks = {
        container: {name: str(quantity.parse(str(amount))) for name, amount in amounts.items()}
        for container, amounts in ending.get("asks", {}).items()
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": told["pod"]["metadata"], "spec": _spec(told["pod"])}
    return Part(told["name"], pod, Ending(**{**ending, "asks": asks}))


def _spec(pod: dict[str, Any]) -> dict[str, Any]:
    return {
        key: [{"image": IMAGE, **container} for container in value]
        if key.lower().endswith("containers")
        else value
        for key, value in pod["spec"].items()
    }
