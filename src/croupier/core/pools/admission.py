"""Decides whether a pod may use the pool it requests, and adds the scheduling hints of that pool.

The checks in order: the pod requests one pool, the pool exists, the pod has access, the pool is open, the
pool can give exactly what the pod is charged, the pool is large enough, and the scheduling constraints of the
pod allow nodes of the pool. The first failed check denies the pod with one sentence that starts with the
reason.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from croupier.core.jsonpatch import Operation
from croupier.core.model import name_list, smallest_share
from croupier.core.model.card import CardMode
from croupier.core.model.card_request import WHOLE_CARD, CardShares, PoolUnits
from croupier.core.model.node_request import NodeRequest
from croupier.core.model.refusal import Refusal
from croupier.core.pods import podspec_view, pool_units, request_parser
from croupier.core.pods.podspec_view import PodSpecView
from croupier.core.pods.request_parser import POOL
from croupier.core.pods.scheduler_filters import NodeTaint
from croupier.core.pools import hints as pool_hints
from croupier.core.pools.hints import SchedulingHints

T = TypeVar("T")

PERCENT: Final = "Percent"
"""The unit of pools in mode MPS."""
_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class PoolAccess:
    """Who may use a pool: any match admits. An empty value admits everyone."""

    namespaces: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    """`namespace/name` of service accounts of pods."""
    groups: frozenset[str] = frozenset()
    """Groups of the user who creates the pod."""


EVERYONE: Final = PoolAccess()


@dataclass(frozen=True, slots=True)
class AdmissionPool:
    """A pool as far as admission depends on it."""

    name: str
    access: PoolAccess = EVERYONE
    closed: str = ""
    """Why the pool accepts no new pods, starting with the reason; empty if it does."""
    total: int | None = None
    """The total units of the pool; None before they are counted."""
    per_pod: int | None = None
    """The most units that one pod can get when all cards are available; None before they are counted."""
    unavailable: str = ""
    """Why the pool provides nothing now; empty if it does."""
    unit: str = ""
    modes: tuple[CardMode, ...] = ()
    """How its cards count; two while the pool changes from one to the other."""
    smallest: int = 1
    """The smallest share of a card, in percent."""
    taints: tuple[NodeTaint, ...] = ()
    spread_over: str = ""
    """The node label over which pods are spread; empty for no spreading."""


@dataclass(frozen=True, slots=True)
class PodRequester:
    """Namespace and service account of the pod, and the user who creates it."""

    namespace: str
    account: str = "default"
    user: str = ""
    groups: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.account}"


@dataclass(frozen=True, slots=True)
class PoolAdmitted:
    pool: str
    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()


PoolLookup = Callable[[str], AdmissionPool | None]
"""Finds a pool by name."""


class _RefusalError(Exception):
    """Carries the message of a failed check."""


def decide(
    pod: Any, asker: PodRequester, known: PoolLookup, *, request_id: str
) -> PoolAdmitted | Refusal | None:
    """Decide about the pod as it was sent; None if it requests no pool.

    The decision is idempotent for the patched pod.
    """
    try:
        wanted = _requested_units(_read(pod))
        if wanted is None:
            return None
        name = wanted.pool
        pool = known(name)
        if pool is None:
            raise _RefusalError(_unknown(name))
        _check_open(pool, asker)
        _check_size(pool, wanted)
        hints = SchedulingHints(pool.name, pool.taints, pool.spread_over, request_id)
        return PoolAdmitted(name, _unwrap(pool_hints.add(pod, hints)), _warnings(pool, wanted.count))
    except _RefusalError as refusal:
        return Refusal(str(refusal))


def admits(access: PoolAccess, asker: PodRequester) -> bool:
    if access == EVERYONE:
        return True
    return (
        asker.namespace in access.namespaces
        or asker.key in access.accounts
        or not access.groups.isdisjoint(asker.groups)
    )


def closed_reason(name: str, conditions: Mapping[str, str], *, deleting: bool) -> str:
    """Why a pool accepts no new pods, from the messages of its conditions that are True."""
    if deleting:
        return f"PoolTerminating: pool {name} is being deleted"
    for condition, state in (("Misconfigured", "is misconfigured"), ("Maintenance", "is in maintenance")):
        if condition in conditions:
            why = conditions[condition].rstrip(".")
            return f"{condition}: pool {name} {state} and accepts no new pods{f': {why}' if why else ''}"
    return ""


def _read(pod: Any) -> PodSpecView:
    return _unwrap(podspec_view.read(pod))


def _requested_units(spec: PodSpecView) -> PoolUnits | None:
    """The requested units, parsed as the ledger does, so that admission accepts nothing more."""
    total = podspec_view.total(spec)
    if not any(name.startswith(POOL) for name in total):
        return None
    wants = _unwrap(request_parser.read(total, spec.annotations))
    return next(want for want in wants if isinstance(want, PoolUnits))


def _unwrap(answer: T | Refusal) -> T:
    if isinstance(answer, Refusal):
        raise _RefusalError(answer.reason)
    return answer


def _check_open(pool: AdmissionPool, asker: PodRequester) -> None:
    if not admits(pool.access, asker):
        raise _RefusalError(_denied(pool, asker))
    if pool.closed:
        raise _RefusalError(f"{pool.closed}; create the pod again when the pool is open")


def _check_size(pool: AdmissionPool, wanted: PoolUnits) -> None:
    """Refuse what the pool could never give, and admit what only has to wait."""
    _check_meaning(pool, wanted)
    if pool.per_pod is None:
        return
    unit = f" (counted in {pool.unit})" if pool.unit else ""
    if wanted.count > pool.per_pod:
        raise _RefusalError(
            f"InsufficientCapacity: the pod requests {wanted.count} of {POOL}{pool.name}, but one node can "
            f"provide at most {pool.per_pod}{unit}, and a pod gets all its units on one node; request less, "
            "or have cards added to the pool"
        )
    cards = pool.per_pod // WHOLE_CARD
    if pool.unit == PERCENT and wanted.spread is not None and wanted.spread.cards > cards:
        raise _RefusalError(
            f"InsufficientCapacity: the pod requests {wanted.spread}, but one node can provide at most "
            f"{cards} different cards, and a pod gets all its cards on one node; request fewer cards, or "
            "have cards added to the pool"
        )


def _warnings(pool: AdmissionPool, wanted: int) -> tuple[str, ...]:
    if pool.total is None:
        return (f"the capacity of pool {pool.name} is not known yet; the pod waits until the pool has cards",)
    if wanted <= pool.total:
        return ()
    why = pool.unavailable or f"the pool has {pool.total:,} of the {name_list.counted(wanted, 'unit')} now"
    return (f"the pod waits for pool {pool.name}: {why}",)


def _check_meaning(pool: AdmissionPool, wanted: PoolUnits) -> None:
    """What the pod would get is what it is charged, in one of the modes of the pool."""
    meanings = [_meaning(pool, wanted, mode) for mode in pool.modes]
    refused = [meaning for meaning in meanings if isinstance(meaning, Refusal)]
    if refused and len(refused) == len(meanings):
        raise _RefusalError(f"InvalidRequest: {refused[0].reason}")


def _meaning(pool: AdmissionPool, wanted: PoolUnits, mode: CardMode) -> NodeRequest | Refusal:
    meaning = pool_units.interpret(wanted, mode)
    if isinstance(meaning, Refusal) or not isinstance(meaning.want, CardShares):
        return meaning
    return smallest_share.refusal(meaning.want.percent, pool.smallest, pool.name) or meaning


def _denied(pool: AdmissionPool, asker: PodRequester) -> str:
    closed_to = (
        f"AccessDenied: pool {pool.name} is open neither to namespace {asker.namespace} "
        f"nor to service account {asker.key}"
    )
    there = f"added to spec.access of GPUPool {pool.name}"
    if not pool.access.groups:
        return f"{closed_to}; have one of them {there}"
    if asker.user.startswith(_ACCOUNT):
        maker = asker.user.removeprefix(_ACCOUNT).replace(":", "/")
        return (
            f"{closed_to}; user groups do not apply, because service account {maker} created the pod, "
            f"as for a Deployment or Job: have the namespace or the pod's service account {there}"
        )
    return f"{closed_to} nor to a group of user {name_list.quoted(asker.user)}; have one of them {there}"


def _unknown(name: str) -> str:
    return (
        f"UnknownPool: GPUPool {name_list.quoted(name)} does not exist, so no node offers {POOL}{name}; "
        "list the pools with `kubectl get gpupools`"
    )
