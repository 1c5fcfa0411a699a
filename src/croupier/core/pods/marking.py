"""The changes that admission makes to a pod so that its card request reaches the ledger and the kubelet.

Users write annotations such as "50 percent of each of two cards", but the kubelet only knows resources. So
one container requests the same amount as `gpu.mps.io/percent`. kube-scheduler calls the extender only for
pods that request certain resources, so every pod that requests cards also gets the ledger resource,
`gpu.mps.io/ledger`. If a second scheduler calls the extender, the pod is assigned to it: the default
scheduler would find the ledger resource on no node, and the pod would stay pending.

All changes are idempotent.
"""

from dataclasses import dataclass
from typing import Final

from croupier.core import jsonpatch
from croupier.core.jsonpatch import Operation
from croupier.core.ledgers.ledger import Refused
from croupier.core.pods import podspec, request
from croupier.core.pods.podspec import ContainerView, PodSpec
from croupier.core.pods.request import CARDS, MARK, PERCENT, POOL, RATIO
from croupier.core.pods.want import Shares
from croupier.core.quantity import NANO, Quantity

CONTAINER: Final = "gpu.mps.io/container"
"""The container that gets the annotated request; the first container by default."""
DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The API server's default for `schedulerName`."""

_ONE: Final = Quantity(NANO)
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Changed:
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The pod needs no change."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The request is invalid; the sentence is for the owner of the pod."""

    sentence: str


def percent(spec: PodSpec) -> Changed | Unchanged | Denied:
    """Add the annotated request as `gpu.mps.io/percent` to the named container, or to the first one."""
    asked = {name: amount for name, amount in podspec.total(spec).items() if _is_share(name)}
    if isinstance(read := request.read(asked, spec.annotations), Refused):
        return Denied(read.reason)
    annotated = _said(spec)
    if trouble := _misplaced(spec, said=bool(annotated)):
        return Denied(trouble)
    target = _named(spec) or next(iter(spec.containers), None)
    if not annotated or target is None or asked:
        return Unchanged()
    return _changed(target, PERCENT, annotated)


def mark(spec: PodSpec) -> Changed | Unchanged:
    """Add `gpu.mps.io/ledger` to the first container that requests cards, unless a container has it."""
    asking = next((view for view in spec.containers if asks_for_cards(view)), None)
    if asking is None or any(view.asks.get(MARK) for view in spec.containers):
        return Unchanged()
    return _changed(asking, MARK, _ONE)


def hand_over(spec: PodSpec, scheduler: str) -> Changed | Unchanged:
    """Assign a pod with `gpu.mps.io/ledger` to our scheduler, unless its owner chose another one."""
    marked = any(view.asks.get(MARK) for view in spec.containers)
    if not marked or scheduler == spec.scheduler or spec.scheduler not in ("", DEFAULT_SCHEDULER):
        return Unchanged()
    return Changed((Operation("add", jsonpatch.pointer("spec", "schedulerName"), scheduler),))


def asks_for_cards(view: ContainerView) -> bool:
    return any(amount and name != MARK for name, amount in view.asks.items())


def _said(spec: PodSpec) -> Quantity:
    """The annotated percent, summed over all cards."""
    read = request.read({}, spec.annotations)
    shares = [] if isinstance(read, Refused) else [item for item in read if isinstance(item, Shares)]
    return Quantity(sum(item.cards * item.percent for item in shares) * NANO)


def _misplaced(spec: PodSpec, *, said: bool) -> str:
    """Why the container annotation is invalid; empty if it is valid."""
    name = spec.annotations.get(CONTAINER)
    if name is None:
        return ""
    written = f"annotation {CONTAINER} is {request.shown(name)}"
    if _named(spec) is None:
        there = ", ".join(request.shown(view.name) for view in spec.containers[:_NAMED])
        return f"{written}: the pod has no such container; it has {there}{_more(spec)}"
    others = [(view, share) for view in spec.containers if view.name != name for share in _shares(view)]
    if others:
        view, share = others[0]
        asker = request.shown(view.name)
        return f"{written}, but container {asker} requests {share}; they must agree"
    if not said and not any(map(_shares, spec.containers)):
        return f"{written}, but the pod requests no cards: set {CARDS} and {RATIO}, or remove the annotation"
    return ""


def _more(spec: PodSpec) -> str:
    unnamed = len(spec.containers) - _NAMED
    return f" and {unnamed} more" if unnamed > 0 else ""


def _named(spec: PodSpec) -> ContainerView | None:
    name = spec.annotations.get(CONTAINER)
    return next((view for view in spec.containers if view.name == name), None)


def _shares(view: ContainerView) -> list[str]:
    return [name for name, amount in view.asks.items() if amount and _is_share(name)]


def _is_share(name: str) -> bool:
    """Whether the resource requests shares of cards: percent, or the resource of a pool."""
    return name == PERCENT or name.startswith(POOL)


def _changed(view: ContainerView, name: str, amount: Quantity) -> Changed:
    """Set both requests and limits: the API server requires both for extended resources."""
    requests, limits = {**view.requests, name: amount}, {**view.limits, name: amount}
    return Changed(podspec.set_resources(view, requests=requests, limits=limits))
