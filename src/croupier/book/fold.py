"""Applies a batch of changes to a ledger. Pure.

Releases and amendments come first, so that claims in the same batch can use the freed capacity; then the
claims by priority, and in order of arrival within a priority. A change that fails leaves the ledger
unchanged and returns the reason; it does not affect the other changes.
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
"""The grant or refusal of a claim; the error of an amendment; None: done."""


class Unlawful(ValueError):
    """An amendment that would violate an invariant of the ledger; the message lists the violations."""


@dataclass(frozen=True, slots=True)
class Folded:
    ledger: Ledger
    answers: tuple[Answer, ...]
    """One result per change, in the order of the input."""


def take(claim: Claim, strategy: Strategy) -> Take:
    """A claim with its expiry in whole seconds, the precision of the stored ledger."""
    until = translate.whole(claim.terms.until)
    return Take(replace(claim, terms=replace(claim.terms, until=until)), strategy)


def writable(ledger: Ledger) -> Ledger:
    """The ledger with every expiry in whole seconds."""
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
    except Exception as bug:  # an error of the caller must not affect the other changes
        return ledger, bug
    if changed is ledger:
        return ledger, None
    violations = ledgers.faults(changed)
    if violations:
        known = ledgers.faults(ledger)
        violations = [violation for violation in violations if violation not in known]
    if changed.node != ledger.node:
        violations.append(f"it would become the ledger of {changed.node}")
    if violations:
        return ledger, Unlawful(f"invalid change of the ledger of {ledger.node}: {'; '.join(violations)}")
    return changed, None
