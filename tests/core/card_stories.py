"""The stories in scenarios/cards as values: what is true of a card in each act, and where it rests then.

They are played without a cluster and on a real one, so nothing here knows either.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from croupier.core.cards.lifecycle import Occupancy, Trouble

FOLDER = Path(__file__).resolve().parents[2] / "scenarios/cards"
UNTOUCHED = "(untouched)"


@dataclass(frozen=True)
class Situation:
    """What is true of the card and its node."""

    node: str | Mapping[str, str] = "unseen"
    incomplete: str = ""
    fault: Mapping[str, str] | None = None
    clean: int = 3
    occupancy: Occupancy = "Free"
    annotation: str = ""
    ignored: bool = False
    managed: bool = True
    drained: bool = False
    pool: str = UNTOUCHED

    @property
    def broken(self) -> Trouble | None:
        return Trouble(self.fault["reason"], self.fault["sentence"]) if self.fault else None

    @property
    def failing(self) -> Mapping[str, str]:
        """Conditions of the node that are True, with their sentences."""
        return {} if isinstance(self.node, str) else self.node


@dataclass(frozen=True)
class Ending:
    phase: str
    pool: str = ""
    path: tuple[str, ...] | None = None
    """None: one step, from where the last act ended."""
    by: str = ""
    reason: str = ""
    says: str = ""
    annotation: str | None = None
    mismatch: str = ""
    pending: tuple[str, ...] = ()


@dataclass(frozen=True)
class Act:
    name: str
    situation: Situation
    pools: Mapping[str, Mapping[str, Any]]
    """The spec of each pool."""
    ending: Ending
    said: frozenset[str] = frozenset()
    """What this act says of the card; the rest is as it was."""


@dataclass(frozen=True)
class Story:
    name: str
    acts: tuple[Act, ...]
    approval: str = "Manual"
    tampered: bool = False
    """Somebody writes what only controllers may."""


def stories() -> dict[str, Story]:
    found = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for told in yaml.safe_load(path.read_text())["stories"]:
            story = _story(told)
            found[f"{path.stem}: {story.name}"] = story
    return found


def _story(told: dict[str, Any]) -> Story:
    known = {"name", "pools", "approval", "acts", "tampered"}
    assert set(told) <= known, f"{told['name']}: unknown {set(told) - known}"
    acts = tuple(_acts(told))
    return Story(told["name"], acts, told.get("approval", "Manual"), told.get("tampered", False))


def _acts(told: dict[str, Any]) -> Iterator[Act]:
    situation, pools = Situation(), _pools(told.get("pools", {}))
    for act in told["acts"]:
        said = act["card"]
        situation = replace(situation, **{"pool": UNTOUCHED, **said})
        if "pools" in act:
            pools = _pools(act["pools"])
        ending = Ending(**{key: _frozen(value) for key, value in act["ending"].items()})
        yield Act(act["name"], situation, pools, ending, frozenset(said))
        if ending.annotation is not None:
            situation = replace(situation, annotation=ending.annotation)


def _pools(told: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: {"allocation": {"mode": "Exclusive"}, **spec} for name, spec in told.items()}


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
