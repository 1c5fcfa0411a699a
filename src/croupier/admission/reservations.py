"""Quotas and limits at admission: of new and changed Reservations, and of pods next to Reservations.

The answer comes from caches and informs at once; the controller decides again with the ledgers when it grants
cards, so the failure policy is Ignore. The API server charges pods by itself; only what Reservations hold in
addition is checked here.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from croupier.admission.review import AdmissionRequest, AdmissionVerdict
from croupier.admission.server import AdmissionDecider
from croupier.api import meta, quotas
from croupier.api.mps import Reservation
from croupier.api.mps.reservation import MIRROR
from croupier.api.quotas import ResourceQuota
from croupier.core import jsonpatch
from croupier.core.claims import budget
from croupier.core.claims.budget import REQUESTS, NamespaceBudget, NamespaceHoldings, ReservationLimits
from croupier.core.model import smallest_share
from croupier.core.model.card_request import CardShares
from croupier.core.model.reason import Reason
from croupier.core.model.refusal import Refusal
from croupier.core.pods import podspec_view

_BOUND = "PodBound"


@dataclass(frozen=True, slots=True)
class CachedBudgets:
    """The budgets of namespaces by the caches of the webhook."""

    reservations: Callable[[str], Iterable[Reservation]]
    """The Reservations of a namespace."""
    quotas: Callable[[str], Iterable[ResourceQuota]]
    """The ResourceQuotas of a namespace."""
    limits: Callable[[], ReservationLimits]

    def of(self, namespace: str, *, without: str) -> NamespaceBudget:
        """`without` is the pod whose Reservation does not count."""
        listed = quotas.of_namespace(self.quotas(namespace))
        current = NamespaceBudget(listed, self.limits())
        counted = [one for one in self.reservations(namespace) if one.spec.pod_key != without]
        charge: Counter[str] = Counter()
        for found in counted:
            charge.update(_charge(found, current))
        waiting = [found for found in counted if not _is_over(found) and not _is_bound(found)]
        cards = sum(found.spec.num_cards for found in waiting if found.status.phase != "Failed")
        held = NamespaceHoldings(len(waiting), cards, charge)
        return NamespaceBudget(listed, current.limits, held)


@dataclass(frozen=True, slots=True)
class ReservationGuard:
    budgets: CachedBudgets
    pod_exists: Callable[[str, str], bool]
    """Whether the namespace has a pod of this name; the controller knows what that pod is charged."""
    smallest: int = 1
    """The smallest share of a card without a pool, in percent."""

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        reason = self._refusal(request)
        return (
            AdmissionVerdict() if reason is None else AdmissionVerdict(allowed=False, sentence=reason.message)
        )

    def _refusal(self, request: AdmissionRequest) -> Reason | None:
        asked, before = _decoded(request.object), _decoded(request.old_object)
        if asked is None or MIRROR in asked.metadata.labels:  # a mirror holds nothing
            return None
        spec = asked.spec
        if before is None or before.spec.ttl_seconds != spec.ttl_seconds:
            refused = budget.ttl_refusal(spec.ttl_seconds, self.budgets.limits())
            if refused is not None or before is not None:
                return refused
        if before is not None:
            return None
        if (too_small := smallest_share.refusal(spec.percent_per_card, self.smallest)) is not None:
            return Reason("InsufficientCapacity", too_small.reason)
        namespace = request.namespace or ""
        current = self.budgets.of(namespace, without=spec.pod_key)
        if self.pod_exists(namespace, spec.pod_key.partition("/")[2]):
            return None
        return current.refusal(CardShares(spec.num_cards, spec.percent_per_card), spec.priority_class_name)


@dataclass(frozen=True, slots=True)
class PodQuotaGuard:
    """Refuses a pod that exceeds a quota together with the Reservations of its namespace."""

    decider: AdmissionDecider
    budgets: CachedBudgets

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        verdict = self.decider.mutate(request)
        if not verdict.allowed:
            return verdict
        pod = jsonpatch.apply(request.object, verdict.operations)
        reason = self._refusal(pod, request.namespace or "")
        if reason is None:
            return verdict
        return AdmissionVerdict(allowed=False, sentence=f"the pod {reason.message}")

    def _refusal(self, pod: Any, namespace: str) -> Reason | None:
        view = podspec_view.read(pod)
        if isinstance(view, Refusal):
            return None
        charge = {REQUESTS + name: amount.whole for name, amount in podspec_view.total(view).items()}
        current = self.budgets.of(namespace, without=f"{namespace}/{view.name}")
        return current.pod_refusal(charge, pod["spec"].get("priorityClassName") or "")


def _charge(found: Reservation, current: NamespaceBudget) -> Mapping[str, int]:
    """What the controller wrote; before its decision, what it would be charged."""
    if found.status.phase == "Pending":
        return current.charge(CardShares(found.spec.num_cards, found.spec.percent_per_card))
    return {each.resource: each.amount for each in found.status.charged}


def _is_over(found: Reservation) -> bool:
    return found.status.phase == "Released"


def _is_bound(found: Reservation) -> bool:
    condition = meta.condition(found.status.conditions, "Reserved")
    return condition is not None and condition.reason == _BOUND


def _decoded(found: dict[str, Any] | None) -> Reservation | None:
    """None if it is not a Reservation that we know; the API server has checked it."""
    if found is None:
        return None
    try:
        return msgspec.convert(found, Reservation)
    except msgspec.ValidationError:
        return None
