"""The changes that admission makes to a pod so that its card request reaches the ledger and the kubelet.

Users write annotations such as "50 percent of each of two cards", but the kubelet only knows resources. So
one container requests the same amount as `gpu.mps.io/percent`. kube-scheduler calls the extender only for
pods that request certain resources, so every pod that requests cards also gets the ledger resource,
`gpu.mps.io/ledger`. If a second scheduler calls the extender, the pod is assigned to it: the default
scheduler would find the ledger resource on no node, and the pod would stay pending.

All changes are idempotent. They are returned as operations, none if the pod needs no change.
"""

from typing import Final

from croupier.core import jsonpatch
from croupier.core.jsonpatch import Operation
from croupier.core.model import name_list
from croupier.core.model.card_request import CardShares
from croupier.core.model.refusal import Refusal
from croupier.core.pods import podspec_view, request_parser
from croupier.core.pods.podspec_view import ContainerView, PodSpecView
from croupier.core.pods.request_parser import CARDS, LEDGER, PERCENT, POOL, RATIO
from croupier.core.quantity import NANO, Quantity

CONTAINER_ANNOTATION: Final = "gpu.mps.io/container"
"""The container that gets the annotated request; the first container by default."""
DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The API server's default for `schedulerName`."""

_ONE: Final = Quantity(NANO)
_MAX_NAMED: Final = 5


def add_percent(spec: PodSpecView) -> tuple[Operation, ...] | Refusal:
    """Add the annotated request as `gpu.mps.io/percent` to the named container, or to the first one."""
    asked = {name: amount for name, amount in podspec_view.total(spec).items() if _is_share(name)}
    if isinstance(read := request_parser.read(asked, spec.annotations), Refusal):
        return read
    annotated = _annotated_percent(spec)
    if trouble := _container_error(spec, said=bool(annotated)):
        return Refusal(trouble)
    target = _named_container(spec) or next(iter(spec.containers), None)
    if not annotated or target is None or asked:
        return ()
    return _changed(target, PERCENT, annotated)


def add_ledger_resource(spec: PodSpecView) -> tuple[Operation, ...]:
    """Add `gpu.mps.io/ledger` to the first container that requests cards, unless a container has it."""
    asking = next((view for view in spec.containers if asks_for_cards(view)), None)
    if asking is None or any(view.asks.get(LEDGER) for view in spec.containers):
        return ()
    return _changed(asking, LEDGER, _ONE)


def set_scheduler(spec: PodSpecView, scheduler: str) -> tuple[Operation, ...]:
    """Assign a pod with `gpu.mps.io/ledger` to our scheduler, unless its owner chose another one."""
    marked = any(view.asks.get(LEDGER) for view in spec.containers)
    if not marked or scheduler == spec.scheduler or spec.scheduler not in ("", DEFAULT_SCHEDULER):
        return ()
    return (Operation("add", jsonpatch.pointer("spec", "schedulerName"), scheduler),)


def asks_for_cards(view: ContainerView) -> bool:
    return any(amount and name != LEDGER for name, amount in view.asks.items())


def _annotated_percent(spec: PodSpecView) -> Quantity:
    """The annotated percent, summed over all cards."""
    read = request_parser.read({}, spec.annotations)
    shares = [] if isinstance(read, Refusal) else [item for item in read if isinstance(item, CardShares)]
    return Quantity(sum(item.cards * item.percent for item in shares) * NANO)


def _container_error(spec: PodSpecView, *, said: bool) -> str:
    """Why the container annotation is invalid; empty if it is valid."""
    name = spec.annotations.get(CONTAINER_ANNOTATION)
    if name is None:
        return ""
    written = f"annotation {CONTAINER_ANNOTATION} is {name_list.quoted(name)}"
    if _named_container(spec) is None:
        there = [name_list.quoted(view.name) for view in spec.containers]
        return f"{written}: the pod has no such container; it has {name_list.shortened(there, _MAX_NAMED)}"
    others = [(view, share) for view in spec.containers if view.name != name for share in _shares(view)]
    if others:
        view, share = others[0]
        asker = name_list.quoted(view.name)
        return f"{written}, but container {asker} requests {share}; they must agree"
    if not said and not any(map(_shares, spec.containers)):
        return f"{written}, but the pod requests no cards: set {CARDS} and {RATIO}, or remove the annotation"
    return ""


def _named_container(spec: PodSpecView) -> ContainerView | None:
    name = spec.annotations.get(CONTAINER_ANNOTATION)
    return next((view for view in spec.containers if view.name == name), None)


def _shares(view: ContainerView) -> list[str]:
    return [name for name, amount in view.asks.items() if amount and _is_share(name)]


def _is_share(name: str) -> bool:
    """Whether the resource requests shares of cards: percent, or the resource of a pool."""
    return name == PERCENT or name.startswith(POOL)


def _changed(view: ContainerView, name: str, amount: Quantity) -> tuple[Operation, ...]:
    """Set both requests and limits: the API server requires both for extended resources."""
    requests, limits = {**view.requests, name: amount}, {**view.limits, name: amount}
    return podspec_view.set_resources(view, requests=requests, limits=limits)
