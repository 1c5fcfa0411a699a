"""What becomes of a ledger when several changes of it are decided together. Pure.

What frees or corrects comes first, so that a claim in the same batch can have it; then the claims,
the higher priority first and those of one priority as they came. What cannot be done leaves the
ledger as it is and says why; the others do not notice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from croupier.api.mps import translate
from croupier.core.ledgers import claim as claims
from croupier.core.ledgers import ledger as ledgers
from croupier.core.ledgers.claim import Claim, Taken
from croupier.core.ledgers.ledger import Grant, Ledger, Refused
from croupier.core.placing.placement import Strategy


@dataclass(frozen=True, slots=True)
class Take:
    claim: Claim
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class Release:
    holder: str


@dataclass(frozen=True, slots=True)
class Amend:
    change: Callable[[Ledger], Ledger]


Step: TypeAlias = Take | Release | Amend
Answer: TypeAlias = Grant | Refused | Exception | None
"""What a claim got or why not; what was wrong with an amendment. None: it is done."""


class Unlawful(ValueError):
    """An amendment that no ledger may undergo; the sentences say what would be wrong with it."""


@dataclass(frozen=True, slots=True)
class Folded:
    ledger: Ledger
    answers: tuple[Answer, ...]
    """One for each step, in the order they were given in."""


def take(claim: Claim, strategy: Strategy) -> Take:
    """A claim whose expiry can be written: what is decided is what stands in the ledger afterwards."""
    until = translate.whole(claim.terms.until)
    return Take(replace(claim, terms=replace(claim.terms, until=until)), strategy)


def writable(ledger: Ledger) -> Ledger:
    """The same, every expiry in whole seconds."""
    if not any(until is not None and until.microsecond for until in ledger.held.values()):
        return ledger
    return replace(ledger, held={holder: translate.whole(until) for holder, until in ledger.held.items()})


def fold(ledger: Ledger, steps: Sequence[Step]) -> Folded:
    answers: list[Answer] = [None] * len(steps)
    for place in sorted(range(len(steps)), key=lambda place: _turn(steps[place])):
        ledger, answers[place] = apply(ledger, steps[place])
    return Folded(ledger, tuple(answers))


def apply(ledger: Ledger, step: Step) -> tuple[Ledger, Answer]:
    match step:
        case Take(claim=claim, strategy=strategy):
            decision = claims.decide(ledger, claim, strategy)
            return (decision.ledger, decision.grant) if isinstance(decision, Taken) else (ledger, decision)
        case Release(holder=holder):
            return ledgers.release(ledger, holder), None
        case Amend(change=change):
            return _amended(ledger, change)


def _turn(step: Step) -> tuple[int, int]:
    return (1, -step.claim.priority) if isinstance(step, Take) else (0, 0)


def _amended(ledger: Ledger, change: Callable[[Ledger], Ledger]) -> tuple[Ledger, Answer]:
    try:
        changed = writable(change(ledger))
    except Exception as bug:  # the caller's own mistake, and his alone: he gets it back
        return ledger, bug
    if changed is ledger:
        return ledger, None
    new = [fault for fault in ledgers.faults(changed) if fault not in ledgers.faults(ledger)]
    if changed.node != ledger.node:
        new.append(f"it would become the ledger of {changed.node}")
    if new:
        return ledger, Unlawful(f"the ledger of {ledger.node} cannot be changed so: {'; '.join(new)}")
    return changed, None
