"""What admission adds to a pod so that its request reaches the ledger and a card.

Annotations are how a person says "half of each of two cards"; the kubelet serves resources only.
So one container asks for what they say as `gpu.mps.io/percent`. And the scheduler asks us about a
pod only because of a resource it names, so every pod that asks for cards gets one that stands for
nothing else: the mark. Where it is a second scheduler that asks us, the pod is given to that one: the
default one would find the mark on no node, and let the pod wait for ever.

All may be done any number of times: what is there already is left as it is.
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
"""Which container gets what the annotations say; the first, if this one is not there."""
DEFAULT_SCHEDULER: Final = "default-scheduler"
"""What the API server writes for an owner who said nothing."""

_ONE: Final = Quantity(NANO)
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Changed:
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The pod needs nothing."""


@dataclass(frozen=True, slots=True)
class Denied:
    """What the pod asks for cannot be meant; the sentence is for its owner."""

    sentence: str


def percent(spec: PodSpec) -> Changed | Unchanged | Denied:
    """What the annotations say, asked for by the first container or by the one they name."""
    asked = {name: amount for name, amount in podspec.total(spec).items() if _is_share(name)}
    if isinstance(read := request.read(asked, spec.annotations), Refused):
        return Denied(read.reason)
    said = _said(spec)
    if trouble := _misplaced(spec, said=bool(said)):
        return Denied(trouble)
    target = _named(spec) or next(iter(spec.containers), None)
    if not said or target is None or asked:
        return Unchanged()
    return _changed(target, PERCENT, said)


def mark(spec: PodSpec) -> Changed | Unchanged:
    """The mark, on the first container that asks for cards, unless one of the pod has it."""
    asking = next((view for view in spec.containers if asks_for_cards(view)), None)
    if asking is None or any(view.asks.get(MARK) for view in spec.containers):
        return Unchanged()
    return _changed(asking, MARK, _ONE)


def hand_over(spec: PodSpec, scheduler: str) -> Changed | Unchanged:
    """To the scheduler that asks us, unless the owner chose one; of pods without the mark we know nothing."""
    marked = any(view.asks.get(MARK) for view in spec.containers)
    if not marked or scheduler == spec.scheduler or spec.scheduler not in ("", DEFAULT_SCHEDULER):
        return Unchanged()
    return Changed((Operation("add", jsonpatch.pointer("spec", "schedulerName"), scheduler),))


def asks_for_cards(view: ContainerView) -> bool:
    return any(amount and name != MARK for name, amount in view.asks.items())


def _said(spec: PodSpec) -> Quantity:
    """Percent of a card, over all cards, that the annotations come to."""
    read = request.read({}, spec.annotations)
    shares = [] if isinstance(read, Refused) else [one for one in read if isinstance(one, Shares)]
    return Quantity(sum(one.cards * one.percent for one in shares) * NANO)


def _misplaced(spec: PodSpec, *, said: bool) -> str:
    """What is wrong with the name of the container."""
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
        return f"{written}, but it is container {asker} that asks for {share}; they must agree"
    if not said and not any(map(_shares, spec.containers)):
        return f"{written}, but nothing says what it gets: set {CARDS} and {RATIO}, or remove it"
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
    """What shares of cards are asked for by: percent, or the resource of a pool, which counts its own."""
    return name == PERCENT or name.startswith(POOL)


def _changed(view: ContainerView, name: str, amount: Quantity) -> Changed:
    """Both in requests and limits: the API server takes no device that has only one of them."""
    requests, limits = {**view.requests, name: amount}, {**view.limits, name: amount}
    return Changed(podspec.set_resources(view, requests=requests, limits=limits))
