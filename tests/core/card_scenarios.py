"""The scenarios in scenarios/cards: the inputs of each step, and the expected state of the card.

They run as pure functions and on a real API server, so this module is independent of both.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from croupier.core.cards.lifecycle import CardTrouble, Occupancy

FOLDER = Path(__file__).resolve().parents[2] / "scenarios/cards"
UNTOUCHED = "(untouched)"


@dataclass(frozen=True)
class CardSituation:
    """The inputs of the card and its node."""

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
    def broken(self) -> CardTrouble | None:
        return CardTrouble(self.fault["reason"], self.fault["sentence"]) if self.fault else None

    @property
    def failing(self) -> Mapping[str, str]:
        """Conditions of the node that are True, with their messages."""
        return {} if isinstance(self.node, str) else self.node


@dataclass(frozen=True)
class ExpectedCard:
    phase: str
    pool: str = ""
    path: tuple[str, ...] | None = None
    """None: one transition from the last phase."""
    by: str = ""
    reason: str = ""
    says: str = ""
    annotation: str | None = None
    mismatch: str = ""
    pending: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScenarioStep:
    name: str
    situation: CardSituation
    pools: Mapping[str, Mapping[str, Any]]
    """The spec of each pool."""
    ending: ExpectedCard
    said: frozenset[str] = frozenset()
    """The fields that this step sets; the others keep their values."""


@dataclass(frozen=True)
class CardScenario:
    name: str
    acts: tuple[ScenarioStep, ...]
    approval: str = "Manual"
    tampered: bool = False
    """The scenario edits fields that only controllers may write."""


def scenarios() -> dict[str, CardScenario]:
    scenarios = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for data in yaml.safe_load(path.read_text())["stories"]:
            story = _scenario(data)
            scenarios[f"{path.stem}: {story.name}"] = story
    return scenarios


def _scenario(data: dict[str, Any]) -> CardScenario:
    known = {"name", "pools", "approval", "acts", "tampered"}
    assert set(data) <= known, f"{data['name']}: unknown {set(data) - known}"
    acts = tuple(_steps(data))
    return CardScenario(data["name"], acts, data.get("approval", "Manual"), data.get("tampered", False))


def _steps(data: dict[str, Any]) -> Iterator[ScenarioStep]:
    situation, pools = CardSituation(), _pools(data.get("pools", {}))
    for act in data["acts"]:
        said = act["card"]
        situation = replace(situation, **{"pool": UNTOUCHED, **said})
        if "pools" in act:
            pools = _pools(act["pools"])
        ending = ExpectedCard(**{key: _frozen(value) for key, value in act["ending"].items()})
        yield ScenarioStep(act["name"], situation, pools, ending, frozenset(said))
        if ending.annotation is not None:
            situation = replace(situation, annotation=ending.annotation)


def _pools(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: {"allocation": {"mode": "Exclusive"}, **spec} for name, spec in data.items()}


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
