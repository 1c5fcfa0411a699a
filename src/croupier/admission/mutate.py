"""The steps that mutate a new pod, and their order.

First the annotations become a resource request, so that the later steps see resources only. Then profiles
that no node offers are replaced. Then variables that would override the grant are overruled or refused, the
mark is added to the final request, and last the scheduler is set, if a second scheduler places these pods.
Each step works on the result of the previous one, and all operations form one patch. Only caches are read, so
the API server never waits for another request.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from croupier.admission.review import AdmissionRequest, AdmissionVerdict
from croupier.api.core_v1 import MIRROR
from croupier.core import jsonpatch
from croupier.core.fallbacks import fallback
from croupier.core.fallbacks.chain import ResourceOffer
from croupier.core.fallbacks.policy import FallbackPolicy
from croupier.core.jsonpatch import Operation
from croupier.core.model import smallest_share
from croupier.core.model.card_request import CardShares
from croupier.core.model.refusal import Refusal
from croupier.core.pods import (
    device_variables,
    disabled,
    ledger_resource,
    podspec_view,
    request_parser,
)
from croupier.core.pods.podspec_view import PodSpecView


@dataclass(frozen=True, slots=True)
class PodMutator:
    """`policy` is called for each pod, so that changed settings apply to the next one."""

    offer: ResourceOffer
    policy: Callable[[], FallbackPolicy]
    scheduler: str = ""
    """The scheduler for pods that request cards; empty for the cluster's default scheduler."""
    smallest: int = 1
    """The smallest share of a card without a pool, in percent."""

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        return rewrite(
            request.object, self.offer, self.policy(), scheduler=self.scheduler, smallest=self.smallest
        )


class FallbackAnnotationRemover:
    """Removes the fallback annotation that a new pod brings, such as a copy of another pod.

    It is called once for each pod, before the first rewrite, so it never removes what the webhook wrote.
    """

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        spec = podspec_view.read(request.object)
        if isinstance(spec, Refusal) or MIRROR in spec.annotations:
            return AdmissionVerdict()
        return AdmissionVerdict(operations=podspec_view.remove_annotation(spec, fallback.ANNOTATION))


class DisabledMutator:
    """Answers while Croupier is disabled: changes nothing, and refuses what only Croupier serves."""

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        spec = podspec_view.read(request.object)
        if isinstance(spec, Refusal) or MIRROR in spec.annotations:
            return AdmissionVerdict()  # the API server judges a malformed pod itself
        match disabled.decide(spec):
            case Refusal(reason):
                return AdmissionVerdict(allowed=False, sentence=reason)
            case warning:
                return AdmissionVerdict(warnings=(warning,) if warning else ())


class _Refusal(Exception):
    """The message of a refused pod."""


@dataclass(frozen=True, slots=True)
class _PodDraft:
    """The pod so far, and the operations that led to it."""

    pod: Any
    spec: PodSpecView
    operations: tuple[Operation, ...] = ()

    def after(self, operations: tuple[Operation, ...]) -> "_PodDraft":
        if not operations:
            return self
        pod = jsonpatch.apply(self.pod, operations)
        return _PodDraft(pod, _read(pod), self.operations + operations)


def rewrite(
    pod: Any, offer: ResourceOffer, policy: FallbackPolicy, *, scheduler: str = "", smallest: int = 1
) -> AdmissionVerdict:
    """Adapt the pod to the cluster; idempotent."""
    try:
        draft = _PodDraft(pod, _read(pod))
        if MIRROR in draft.spec.annotations:
            return AdmissionVerdict()  # the mirror of a static pod, which runs already
        draft = _percent(draft)
        _check_share(draft.spec, smallest)
        draft, verdict = _fallback(draft, offer, policy)
        draft, warnings = _variables(draft)
        draft = draft.after(ledger_resource.add_ledger_resource(draft.spec))
        if scheduler:
            draft = draft.after(ledger_resource.set_scheduler(draft.spec, scheduler))
        return replace(verdict, operations=draft.operations, warnings=verdict.warnings + warnings)
    except _Refusal as refusal:
        return AdmissionVerdict(allowed=False, sentence=str(refusal))


def _percent(draft: _PodDraft) -> _PodDraft:
    added = ledger_resource.add_percent(draft.spec)
    if isinstance(added, Refusal):
        raise _Refusal(added.reason)
    return draft.after(added)


def _check_share(spec: PodSpecView, smallest: int) -> None:
    wants = request_parser.read(podspec_view.total(spec), spec.annotations)
    for want in wants if not isinstance(wants, Refusal) else ():
        if isinstance(want, CardShares) and (refused := smallest_share.refusal(want.percent, smallest)):
            raise _Refusal(refused.reason)


def _fallback(
    draft: _PodDraft, offer: ResourceOffer, policy: FallbackPolicy
) -> tuple[_PodDraft, AdmissionVerdict]:
    match fallback.decide(draft.spec, offer, policy):
        case fallback.FallbackDenied(sentence):
            raise _Refusal(sentence)
        case fallback.FallbackUnchanged() as same:
            return draft, AdmissionVerdict(warnings=same.warnings, events=same.events)
        case fallback.FallbackChanges() as made:
            verdict = AdmissionVerdict(warnings=made.warnings, events=made.events, fallbacks=made.pairs)
            return draft.after(made.operations), verdict


def _variables(draft: _PodDraft) -> tuple[_PodDraft, tuple[str, ...]]:
    changes = device_variables.overrule(draft.spec)
    if isinstance(changes, Refusal):
        raise _Refusal(changes.reason)
    return draft.after(changes.operations), changes.warnings


def _read(pod: Any) -> PodSpecView:
    spec = podspec_view.read(pod)
    if isinstance(spec, Refusal):
        raise _Refusal(spec.reason)
    return spec
