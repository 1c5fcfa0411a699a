"""What happens to a pod on its way in, and in which order.

First what its annotations say becomes a request, so that everything after sees resources only. Then
what no node offers is replaced. Then comes the mark, on whatever is asked for in the end, and last who
places the pod: a second scheduler, where only that one asks us. Each step
decides on the pod as the steps before left it, and the answer is one patch: the steps one after
another. Nothing but memory is read, so that the API server never waits for us to ask it something.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from croupier.admission.policy import MIRROR
from croupier.admission.review import AdmissionRequest, Verdict
from croupier.core import jsonpatch
from croupier.core.fallbacks import fallback
from croupier.core.fallbacks.chain import Offer
from croupier.core.fallbacks.policy import Policy
from croupier.core.jsonpatch import Operation
from croupier.core.ledgers.ledger import Refused
from croupier.core.pods import marking, podspec
from croupier.core.pods.podspec import PodSpec


@dataclass(frozen=True, slots=True)
class Mutator:
    """`policy` is asked for each pod, so that a change of settings counts for the next one."""

    offer: Offer
    policy: Callable[[], Policy]
    scheduler: str = ""
    """Who places pods that ask for cards; empty where the cluster's own scheduler does."""

    def mutate(self, request: AdmissionRequest) -> Verdict:
        return rewrite(request.object, self.offer, self.policy(), scheduler=self.scheduler)


class _Refusal(Exception):
    """Carries the sentence out of a step."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """The pod so far, and what made it so."""

    pod: Any
    spec: PodSpec
    operations: tuple[Operation, ...] = ()

    def after(self, operations: tuple[Operation, ...]) -> "_Draft":
        if not operations:
            return self
        pod = jsonpatch.apply(self.pod, operations)
        return _Draft(pod, _read(pod), self.operations + operations)


def rewrite(pod: Any, offer: Offer, policy: Policy, *, scheduler: str = "") -> Verdict:
    """The pod as its owner wrote it, made to fit the cluster; doing it again changes nothing."""
    try:
        draft = _Draft(pod, _read(pod))
        if MIRROR in draft.spec.annotations:
            return Verdict()  # a static pod runs already; this only shows it
        draft = _percent(draft)
        draft, verdict = _fallback(draft, offer, policy)
        draft = draft.after(_operations(marking.mark(draft.spec)))
        if scheduler:
            draft = draft.after(_operations(marking.hand_over(draft.spec, scheduler)))
        return replace(verdict, operations=draft.operations)
    except _Refusal as refusal:
        return Verdict(allowed=False, sentence=str(refusal))


def _percent(draft: _Draft) -> _Draft:
    match marking.percent(draft.spec):
        case marking.Denied(sentence):
            raise _Refusal(sentence)
        case marking.Changed(operations):
            return draft.after(operations)
        case marking.Unchanged():
            return draft


def _fallback(draft: _Draft, offer: Offer, policy: Policy) -> tuple[_Draft, Verdict]:
    match fallback.decide(draft.spec, offer, policy):
        case fallback.Denied(sentence):
            raise _Refusal(sentence)
        case fallback.Unchanged() as same:
            return draft, Verdict(warnings=same.warnings, events=same.events)
        case fallback.Fallback() as made:
            told = Verdict(warnings=made.warnings, events=made.events, fallbacks=made.pairs)
            return draft.after(made.operations), told


def _operations(decision: marking.Changed | marking.Unchanged) -> tuple[Operation, ...]:
    return decision.operations if isinstance(decision, marking.Changed) else ()


def _read(pod: Any) -> PodSpec:
    spec = podspec.read(pod)
    if isinstance(spec, Refused):
        raise _Refusal(spec.reason)
    return spec
