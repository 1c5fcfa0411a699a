"""Applies a batch of changes to a ledger. Pure.

Releases and amendments come first, so that claims in the same batch can use the freed capacity; then the
claims by priority, and in order of arrival within a priority. A change that fails leaves the ledger
unchanged and returns the reason; it does not affect the other changes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from croupier.api.mps import ledger_codec
from croupier.core.claims import claim as claims
from croupier.core.claims.claim import CardClaim, Granted
from croupier.core.ledger import ledger as ledgers
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import Grant
from croupier.core.model.refusal import Refusal
from croupier.core.placement.placement import Strategy


@dataclass(frozen=True, slots=True)
class ClaimChange:
    claim: CardClaim
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class ReleaseChange:
    holder: str


@dataclass(frozen=True, slots=True)
class AmendChange:
    change: Callable[[Ledger], Ledger]


BatchChange: TypeAlias = ClaimChange | ReleaseChange | AmendChange
ChangeResult: TypeAlias = Grant | Refusal | Exception | None
"""The grant or refusal of a claim; the error of an amendment; None: done."""


class InvalidChange(ValueError):
    """An amendment that would violate an invariant of the ledger; the message lists the violations."""


@dataclass(frozen=True, slots=True)
class BatchResult:
    ledger: Ledger
    answers: tuple[ChangeResult, ...]
    """One result per change, in the order of the input."""


def claim_change(claim: CardClaim, strategy: Strategy) -> ClaimChange:
    """A claim with its expiry in whole seconds, the precision of the stored ledger."""
    until = ledger_codec.round_up(claim.terms.until)
    return ClaimChange(replace(claim, terms=replace(claim.terms, until=until)), strategy)


def with_whole_seconds(ledger: Ledger) -> Ledger:
    """The ledger with every expiry in whole seconds."""
    if not any(until is not None and until.microsecond for until in ledger.held.values()):
        return ledger
    return replace(
        ledger, held={holder: ledger_codec.round_up(until) for holder, until in ledger.held.items()}
    )


def apply_batch(ledger: Ledger, steps: Sequence[BatchChange]) -> BatchResult:
    answers: list[ChangeResult] = [None] * len(steps)
    for place in sorted(range(len(steps)), key=lambda place: _priority(steps[place])):
        ledger, answers[place] = apply(ledger, steps[place])
    return BatchResult(ledger, tuple(answers))


def apply(ledger: Ledger, step: BatchChange) -> tuple[Ledger, ChangeResult]:
    match step:
        case ClaimChange(claim=claim, strategy=strategy):
            decision = claims.decide(ledger, claim, strategy)
            return (decision.ledger, decision.grant) if isinstance(decision, Granted) else (ledger, decision)
        case ReleaseChange(holder=holder):
            return ledgers.release(ledger, holder), None
        case AmendChange(change=change):
            return _amend(ledger, change)


def _priority(step: BatchChange) -> tuple[int, int]:
    return (1, -step.claim.priority) if isinstance(step, ClaimChange) else (0, 0)


def _amend(ledger: Ledger, change: Callable[[Ledger], Ledger]) -> tuple[Ledger, ChangeResult]:
    try:
        changed = with_whole_seconds(change(ledger))
    except Exception as bug:  # an error of the caller must not affect the other changes
        return ledger, bug
    if changed is ledger:
        return ledger, None
    violations = ledgers.invariant_violations(changed)
    if violations:
        known = ledgers.invariant_violations(ledger)
        violations = [violation for violation in violations if violation not in known]
    if changed.node != ledger.node:
        violations.append(f"it would become the ledger of {changed.node}")
    if violations:
        return ledger, InvalidChange(
            f"invalid change of the ledger of {ledger.node}: {'; '.join(violations)}"
        )
    return changed, None
