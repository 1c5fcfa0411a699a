"""What is added to a pod of a pool so that the scheduler looks where the pool's cards are. Pure.

Required node affinity to the nodes of the pool, in every alternative the pod names; tolerations of the pool's
taints; for pools that spread, a preference for the emptier zone. The pod carries the pool as a label, because
spreading counts pods by labels, and the id of the request that let it in. Nothing the pod says is taken away:
what contradicts is refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from croupier.core import jsonpatch
from croupier.core.jsonpatch import Operation
from croupier.core.ledgers.ledger import Refused
from croupier.core.pods import request
from croupier.core.pods.eligible import Taint, Toleration

POD_LABEL: Final = "gpu.deckhouse.io/pool"
"""On a pod: the pool that admission let it into."""
REQUEST_ID: Final = "gpu.deckhouse.io/request-id"
NODE_LABEL: Final = "pool.gpu.deckhouse.io/"
"""Followed by the name of a pool: on every node that has cards of it, with an empty value."""

_REQUIRED: Final = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
_SPREADING: Final = ("spec", "topologySpreadConstraints")
_TOLERATIONS: Final = ("spec", "tolerations")


@dataclass(frozen=True, slots=True)
class Hints:
    pool: str
    taints: tuple[Taint, ...] = ()
    spread_over: str = ""
    request_id: str = ""

    @property
    def label(self) -> str:
        return NODE_LABEL + self.pool


class _ConflictError(Exception):
    """Carries the sentence out of a step."""


def add(pod: Any, hints: Hints) -> tuple[Operation, ...] | Refused:
    """What makes the pod carry the hints; nothing if it does."""
    operations: tuple[Operation, ...] = ()
    try:
        _check_selector(pod, hints)
        for step in (_labelled, _annotated, _affine, _tolerant, _spread):
            made = tuple(step(pod, hints))
            pod = jsonpatch.apply(pod, made)
            operations += made
    except _ConflictError as conflict:
        return Refused(f"SchedulingConflict: {conflict}")
    return operations


def _labelled(pod: Any, hints: Hints) -> Iterator[Operation]:
    value = _mapping(pod, "metadata", "labels").get(POD_LABEL)
    if value not in (None, hints.pool):
        raise _ConflictError(
            f"the pod asks for pool {hints.pool} and is labelled {POD_LABEL}={value}; leave the label out"
        )
    if value is None:
        yield _put(pod, hints.pool, "metadata", "labels", POD_LABEL)


def _annotated(pod: Any, hints: Hints) -> Iterator[Operation]:
    """Whatever it brought along: an id belongs to one request."""
    if _mapping(pod, "metadata", "annotations").get(REQUEST_ID) != hints.request_id:
        yield _put(pod, hints.request_id, "metadata", "annotations", REQUEST_ID)


def _check_selector(pod: Any, hints: Hints) -> None:
    value = _mapping(pod, "spec", "nodeSelector").get(hints.label)
    if value not in (None, ""):
        raise _ConflictError(
            f"spec.nodeSelector wants {hints.label}={request.shown(str(value))}, but nodes of pool "
            f"{hints.pool} have that label with an empty value; leave it out"
        )


def _affine(pod: Any, hints: Hints) -> Iterator[Operation]:
    """In every alternative: they are alternatives of one another, so one without it would lead elsewhere."""
    wanted = {"key": hints.label, "operator": "Exists"}
    required = _mapping(pod, *_REQUIRED)
    terms = _sequence(required, "nodeSelectorTerms")
    if not terms:
        yield _put(pod, [{"matchExpressions": [wanted]}], *_REQUIRED, "nodeSelectorTerms")
    for index, term in enumerate(terms):
        expressions = _sequence(term, "matchExpressions")
        if any(_contradicts(one, hints.label) for one in expressions):
            raise _ConflictError(
                f"its node affinity keeps the pod off nodes that have {hints.label}, and those are the nodes "
                f"of pool {hints.pool}; leave that requirement out"
            )
        if not expressions and not _sequence(term, "matchFields"):
            continue  # an empty alternative matches no node, and must not come to match some
        if wanted not in expressions:
            where = (*_REQUIRED, "nodeSelectorTerms", index, "matchExpressions")
            yield Operation("add", jsonpatch.pointer(*where), [*expressions, wanted])


def _contradicts(expression: Any, label: str) -> bool:
    """No node of the pool has the label like that: it is there, and empty."""
    one = expression if isinstance(expression, dict) else {}
    if one.get("key") != label:
        return False
    values = one.get("values") or []
    match one.get("operator"):
        case "DoesNotExist" | "Gt" | "Lt":
            return True
        case "In":
            return "" not in values
        case "NotIn":
            return "" in values
        case _:
            return False


def _tolerant(pod: Any, hints: Hints) -> Iterator[Operation]:
    found = _sequence(_mapping(pod, "spec"), "tolerations")
    tolerated = [_toleration(one) for one in found if isinstance(one, dict)]
    lacking = [
        {"key": one.key, "operator": "Equal", "value": one.value, "effect": one.effect}
        for one in dict.fromkeys(hints.taints)
        if not any(known.covers(one) for known in tolerated)
    ]
    if lacking:
        yield _put(pod, [*found, *lacking], *_TOLERATIONS)


def _toleration(one: Mapping[str, Any]) -> Toleration:
    return Toleration(
        one.get("key") or "", one.get("operator") or "Equal", one.get("value") or "", one.get("effect") or ""
    )


def _spread(pod: Any, hints: Hints) -> Iterator[Operation]:
    """A wish, not a demand: a pod that cannot be spread still runs. One that says how, is left alone."""
    found = _sequence(_mapping(pod, "spec"), "topologySpreadConstraints")
    said = {one.get("topologyKey") for one in found if isinstance(one, dict)}
    if not hints.spread_over or hints.spread_over in said:
        return
    wanted = {
        "maxSkew": 1,
        "topologyKey": hints.spread_over,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {POD_LABEL: hints.pool}},
    }
    yield _put(pod, [*found, wanted], *_SPREADING)


def _put(pod: Any, value: Any, *steps: str) -> Operation:
    """Sets a value, and makes what is missing on the way to it."""
    node = pod
    for depth, step in enumerate(steps[:-1], start=1):
        node = node.get(step) if isinstance(node, dict) else None
        if node is None:
            for inner in reversed(steps[depth:]):
                value = {inner: value}
            return Operation("add", jsonpatch.pointer(*steps[:depth]), value)
    return Operation("add", jsonpatch.pointer(*steps), value)


def _mapping(found: Any, *steps: str) -> dict[str, Any]:
    """What is there; nothing there, or null, is empty."""
    for index, step in enumerate(steps, start=1):
        found = found.get(step)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise _ConflictError(f"{'.'.join(steps[:index])} must be a mapping")
    return found if isinstance(found, dict) else {}


def _sequence(found: Any, key: str) -> list[Any]:
    inner = found.get(key) if isinstance(found, dict) else None
    if inner is None:
        return []
    if not isinstance(inner, list):
        raise _ConflictError(f"{key} must be a list")
    return inner
