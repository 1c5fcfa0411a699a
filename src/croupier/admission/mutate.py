"""The steps that mutate a new pod, and their order.

First the annotations become a resource request, so that the later steps see resources only. Then profiles
that no node offers are replaced. Then the mark is added to the final request, and last the scheduler is set,
if a second scheduler places these pods. Each step works on the result of the previous one, and all
operations form one patch. Only caches are read, so the API server never waits for another request.
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
    """`policy` is called for each pod, so that changed settings apply to the next one."""

    offer: Offer
    policy: Callable[[], Policy]
    scheduler: str = ""
    """The scheduler for pods that request cards; empty for the cluster's default scheduler."""

    def mutate(self, request: AdmissionRequest) -> Verdict:
        return rewrite(request.object, self.offer, self.policy(), scheduler=self.scheduler)


class _Refusal(Exception):
    """The message of a refused pod."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """The pod so far, and the operations that led to it."""

    pod: Any
    spec: PodSpec
    operations: tuple[Operation, ...] = ()

    def after(self, operations: tuple[Operation, ...]) -> "_Draft":
        if not operations:
            return self
        pod = jsonpatch.apply(self.pod, operations)
        return _Draft(pod, _read(pod), self.operations + operations)


def rewrite(pod: Any, offer: Offer, policy: Policy, *, scheduler: str = "") -> Verdict:
    """Adapt the pod to the cluster; idempotent."""
    try:
        draft = _Draft(pod, _read(pod))
        if MIRROR in draft.spec.annotations:
            return Verdict()  # the mirror of a static pod, which runs already
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
            verdict = Verdict(warnings=made.warnings, events=made.events, fallbacks=made.pairs)
            return draft.after(made.operations), verdict


def _operations(decision: marking.Changed | marking.Unchanged) -> tuple[Operation, ...]:
    return decision.operations if isinstance(decision, marking.Changed) else ()


def _read(pod: Any) -> PodSpec:
    spec = podspec.read(pod)
    if isinstance(spec, Refused):
        raise _Refusal(spec.reason)
    return spec
