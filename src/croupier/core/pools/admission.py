"""Whether a pod may use the pool it asks for, and what is added to it so that it gets there. Pure.

Asked in this order: is it one pool, is there such a pool, may its owner use it, does it take pods now, can it
ever give that much, and does what the pod says about nodes leave any of the pool's. The first no is the
answer: one sentence, its name first.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from croupier.core.jsonpatch import Operation
from croupier.core.ledgers.ledger import Refused
from croupier.core.pods import podspec, request
from croupier.core.pods.eligible import Taint
from croupier.core.pods.podspec import PodSpec
from croupier.core.pods.request import POOL
from croupier.core.pools import hints as pool_hints
from croupier.core.pools.hints import Hints

POD_LABEL: Final = pool_hints.POD_LABEL
REQUEST_ID: Final = pool_hints.REQUEST_ID
NODE_LABEL: Final = pool_hints.NODE_LABEL

T = TypeVar("T")

_ACCOUNT: Final = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class Subjects:
    """Who may use a pool: any match admits, and nobody named admits everyone."""

    namespaces: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    """`namespace/name` of service accounts that pods run as."""
    groups: frozenset[str] = frozenset()
    """Of the user who creates the pod."""


EVERYONE: Final = Subjects()


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool as admission knows it."""

    name: str
    access: Subjects = EVERYONE
    closed: str = ""
    """Why it takes no new pods, the name of the reason first; empty if it does."""
    total: int | None = None
    """Units it has in all; None until it was counted."""
    unit: str = ""
    taints: tuple[Taint, ...] = ()
    spread_over: str = ""
    """The label of nodes over whose values its pods are spread; empty if they are not."""


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: the pod's place and account, and the user who creates it."""

    namespace: str
    account: str = "default"
    user: str = ""
    groups: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.account}"


@dataclass(frozen=True, slots=True)
class Admitted:
    pool: str
    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unconcerned:
    """The pod asks for no pool."""


@dataclass(frozen=True, slots=True)
class Denied:
    """`sentence` is for whoever creates the pod."""

    sentence: str


Known = Callable[[str], Pool | None]
"""The pool of a name, if there is one."""


class _RefusalError(Exception):
    """Carries the sentence out of a step."""


def decide(pod: Any, asker: Asker, known: Known, *, request_id: str) -> Admitted | Unconcerned | Denied:
    """The pod as it was sent; deciding again about what came of it changes nothing."""
    try:
        name, wanted = _named(_read(pod))
        if not wanted:
            return Unconcerned()
        pool = known(name)
        if pool is None:
            raise _RefusalError(_unknown(name))
        _check(pool, asker, wanted)
        hints = Hints(pool.name, pool.taints, pool.spread_over, request_id)
        warnings = () if pool.total is not None else (_uncounted(pool),)
        return Admitted(name, _taken(pool_hints.add(pod, hints)), warnings)
    except _RefusalError as refusal:
        return Denied(str(refusal))


def admits(access: Subjects, asker: Asker) -> bool:
    if access == EVERYONE:
        return True
    return (
        asker.namespace in access.namespaces
        or asker.key in access.accounts
        or not access.groups.isdisjoint(asker.groups)
    )


def closed(name: str, conditions: Mapping[str, str], *, leaving: bool) -> str:
    """Why a pool takes no new pods, from those of its conditions that hold, each with its message."""
    if leaving:
        return f"PoolTerminating: pool {name} is being removed"
    for condition, word in (("Misconfigured", "is misconfigured"), ("Maintenance", "is in maintenance")):
        if condition in conditions:
            why = conditions[condition].rstrip(".")
            return f"{condition}: pool {name} {word} and takes no new pods{f': {why}' if why else ''}"
    return ""


def _read(pod: Any) -> PodSpec:
    return _taken(podspec.read(pod))


def _named(spec: PodSpec) -> tuple[str, int]:
    """The one pool it asks for, read as the ledger reads it, so that nobody is let in whom that refuses."""
    total = podspec.total(spec)
    if not any(name.startswith(POOL) for name in total):
        return "", 0
    wants = _taken(request.read(total, spec.annotations))
    name = next(one.pool for one in wants if one.pool)
    return name, total[POOL + name].whole


def _taken(answer: T | Refused) -> T:
    if isinstance(answer, Refused):
        raise _RefusalError(answer.reason)
    return answer


def _check(pool: Pool, asker: Asker, wanted: int) -> None:
    if not admits(pool.access, asker):
        raise _RefusalError(_denied(pool, asker))
    if pool.closed:
        raise _RefusalError(f"{pool.closed}; create the pod again when it is open")
    if pool.total is not None and wanted > pool.total:
        unit = f" (counted in {pool.unit})" if pool.unit else ""
        raise _RefusalError(
            f"InsufficientCapacity: the pod asks for {wanted} of {POOL}{pool.name}, and the pool has "
            f"{pool.total} in all{unit}; ask for less, or have cards added to the pool"
        )


def _denied(pool: Pool, asker: Asker) -> str:
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
            f"{closed_to}; no group of yours counts here, because service account {maker} created the pod, "
            f"as it is with a Deployment or Job: have the namespace or the pod's service account {there}"
        )
    return f"{closed_to} nor to a group of user {request.shown(asker.user)}; have one of them {there}"


def _unknown(name: str) -> str:
    return (
        f"UnknownPool: there is no GPUPool {request.shown(name)}, so no node can ever offer {POOL}{name}; "
        "see `kubectl get gpupools` for those there are"
    )


def _uncounted(pool: Pool) -> str:
    return f"pool {pool.name} has not been counted yet: the pod waits until it has cards"
