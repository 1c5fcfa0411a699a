"""Runs scenarios/cards as pure functions: the state of the card after each step, and the transitions."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from croupier.api.gpu import GPUPool, convert_pool
from croupier.core.cards import card_decision, lifecycle
from croupier.core.cards.card_decision import CardDecision, CurrentCard
from croupier.core.cards.lifecycle import TABLE, CardFacts, CardPhase, CardTrouble, TransitionTaken
from croupier.core.pools.assignment import Approval, AssignableCard, Assignment
from croupier.core.pools.selection import CardTraits
from tests.core import card_scenarios
from tests.core.card_scenarios import UNTOUCHED, CardScenario, CardSituation, ScenarioStep

SCENARIOS = card_scenarios.scenarios()
CARD = "node-1-0000-65-00-0"


@dataclass
class CardEnv:
    """One card with its stored state."""

    approval: Approval
    phase: CardPhase = "Discovered"
    pool: str = ""
    annotation: str = ""
    steps: list[TransitionTaken] = field(default_factory=list)
    mismatch: str = ""
    written: str | None = None
    answer: Assignment = field(default_factory=Assignment)

    def play(self, act: ScenarioStep) -> None:
        self.steps, self.mismatch, self.written = [], "", None
        if "annotation" in act.said:
            self.annotation = act.situation.annotation
        if act.situation.pool != UNTOUCHED:
            self.pool = act.situation.pool
        pools = [convert_pool.pool(_pool(name, spec)) for name, spec in act.pools.items()]
        for _ in range(5):
            current = CurrentCard(self.card(act.situation), self.phase, facts(act.situation))
            decision = card_decision.decide([current], {}, pools, self.approval)[CARD]
            if not self.carry_out(decision):
                return
        raise AssertionError(f"{act.name}: the lifecycle does not terminate")

    def carry_out(self, decision: CardDecision) -> bool:
        """Whether anything was written."""
        self.answer = decision.assignment
        self.steps += decision.steps
        self.phase, self.pool = decision.phase, decision.pool
        if decision.assignment.annotation is not None:
            self.annotation = self.written = decision.assignment.annotation
            self.mismatch = decision.assignment.mismatch
            return True
        return bool(decision.steps)

    def card(self, now: CardSituation) -> AssignableCard:
        return AssignableCard(
            CardTraits(CARD, index=0, product="H100"),
            annotation=self.annotation,
            pool=self.pool,
            excluded=now.ignored or not now.managed,
            drained=now.drained,
            busy=now.occupancy in ("Reserved", "InUse"),
        )


def facts(now: CardSituation) -> CardFacts:
    failing = [CardTrouble(name, sentence) for name, sentence in now.failing.items()]
    return CardFacts(
        managed=now.managed,
        ignored=now.ignored,
        checked=now.node != "unseen",
        prepared=now.node == "fit",
        trouble=failing[0] if failing else None,
        fault=now.broken,
        clean=now.clean,
        incomplete=now.incomplete,
        occupancy=now.occupancy,
    )


def _pool(name: str, spec: Any) -> GPUPool:
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, GPUPool)


def play(story: CardScenario) -> list[TransitionTaken]:
    stage = CardEnv(Approval("Automatic" if story.approval == "Automatic" else "Manual"))
    taken: list[TransitionTaken] = []
    for act in story.acts:
        before = stage.phase
        stage.play(act)
        check(stage, act, before)
        taken += stage.steps
    return taken


def check(stage: CardEnv, act: ScenarioStep, before: CardPhase) -> None:
    wanted, steps = act.ending, stage.steps
    path = (before, *(step.end for step in steps if step.end != step.start)) if steps else ()
    assert (stage.phase, stage.pool) == (wanted.phase, wanted.pool), act.name
    assert path == (wanted.path if wanted.path is not None else (before, wanted.phase)), act.name
    assert stage.written == wanted.annotation, act.name
    assert wanted.mismatch in stage.mismatch, act.name
    if wanted.pending:
        assert tuple(pending.reason for pending in stage.answer.pending) == wanted.pending, act.name
    if steps:
        last = steps[-1]
        assert wanted.by in ("", last.owner), act.name
        assert wanted.reason in ("", last.reason), act.name
        assert wanted.says in last.sentence, act.name
        assert last.end in lifecycle.event_note(tuple(steps))


@pytest.mark.parametrize("story", SCENARIOS.values(), ids=SCENARIOS)
def test_the_card_reaches_the_expected_state(story: CardScenario):
    play(story)


def test_every_transition_is_taken_from_each_of_its_phases():
    taken = {(step.start, TABLE.index(step.row)) for story in SCENARIOS.values() for step in play(story)}
    missing = [
        f"{start} -> {row.end or start}: {row.rule.words}"
        for index, row in enumerate(TABLE)
        for start in row.starts
        if (start, index) not in taken
    ]

    assert missing == []
