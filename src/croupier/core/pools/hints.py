"""Scheduling hints that admission adds to a pod of a pool.

They are a required node affinity to the nodes of the pool, in every term; tolerations of the pool's taints;
and for pools that spread, a topology spread constraint. The pod gets the pool as a label, because spreading
counts pods by labels, and the id of its admission request. Nothing in the pod is removed: a conflicting pod
is refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from croupier.core import jsonpatch
from croupier.core.jsonpatch import Operation
from croupier.core.model import name_list
from croupier.core.model.refusal import Refusal
from croupier.core.pods.scheduler_filters import NodeTaint, PodToleration

POD_LABEL: Final = "gpu.deckhouse.io/pool"
"""On a pod: the pool that it was admitted to."""
REQUEST_ID: Final = "gpu.deckhouse.io/request-id"
NODE_LABEL: Final = "pool.gpu.deckhouse.io/"
"""Prefix of the label on every node with cards of a pool; the pool name follows, the value is empty."""
TAINTS: Final = "gpu.deckhouse.io/pool-taints"
"""On a node: the taints that Croupier added to it."""

_REQUIRED: Final = ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
_SPREADING: Final = ("spec", "topologySpreadConstraints")
_TOLERATIONS: Final = ("spec", "tolerations")


@dataclass(frozen=True, slots=True)
class SchedulingHints:
    pool: str
    taints: tuple[NodeTaint, ...] = ()
    spread_over: str = ""
    request_id: str = ""

    @property
    def label(self) -> str:
        return NODE_LABEL + self.pool


class _ConflictError(Exception):
    """Carries the message of a conflict."""


def add(pod: Any, hints: SchedulingHints) -> tuple[Operation, ...] | Refusal:
    """The patch that adds the hints; empty if the pod has them."""
    operations: tuple[Operation, ...] = ()
    try:
        _check_selector(pod, hints)
        for step in (_labelled, _annotated, _affine, _tolerant, _spread):
            made = tuple(step(pod, hints))
            pod = jsonpatch.apply(pod, made)
            operations += made
    except _ConflictError as conflict:
        return Refusal(f"SchedulingConflict: {conflict}")
    return operations


def _labelled(pod: Any, hints: SchedulingHints) -> Iterator[Operation]:
    value = _mapping(pod, "metadata", "labels").get(POD_LABEL)
    if value not in (None, hints.pool):
        raise _ConflictError(
            f"the pod requests pool {hints.pool} but is labelled {POD_LABEL}={value}; remove the label"
        )
    if value is None:
        yield _put(pod, hints.pool, "metadata", "labels", POD_LABEL)


def _annotated(pod: Any, hints: SchedulingHints) -> Iterator[Operation]:
    """Overwrite an existing id: it belongs to another request."""
    if _mapping(pod, "metadata", "annotations").get(REQUEST_ID) != hints.request_id:
        yield _put(pod, hints.request_id, "metadata", "annotations", REQUEST_ID)


def _check_selector(pod: Any, hints: SchedulingHints) -> None:
    value = _mapping(pod, "spec", "nodeSelector").get(hints.label)
    if value not in (None, ""):
        raise _ConflictError(
            f"spec.nodeSelector requires {hints.label}={name_list.quoted(str(value))}, "
            "but nodes of pool "
            f"{hints.pool} have that label with an empty value; remove it"
        )


def _affine(pod: Any, hints: SchedulingHints) -> Iterator[Operation]:
    """Add the requirement to every term: terms are alternatives, so each of them needs it."""
    wanted = {"key": hints.label, "operator": "Exists"}
    required = _mapping(pod, *_REQUIRED)
    terms = _sequence(required, "nodeSelectorTerms")
    if not terms:
        yield _put(pod, [{"matchExpressions": [wanted]}], *_REQUIRED, "nodeSelectorTerms")
    for index, term in enumerate(terms):
        expressions = _sequence(term, "matchExpressions")
        if any(_contradicts(expression, hints.label) for expression in expressions):
            raise _ConflictError(
                f"the node affinity of the pod excludes nodes with the label {hints.label}, which all nodes "
                f"of pool {hints.pool} have; remove that requirement"
            )
        if not expressions and not _sequence(term, "matchFields"):
            continue  # an empty term matches no node, and must not start to match some
        if wanted not in expressions:
            where = (*_REQUIRED, "nodeSelectorTerms", index, "matchExpressions")
            yield Operation("add", jsonpatch.pointer(*where), [*expressions, wanted])


def _contradicts(expression: Any, label: str) -> bool:
    """No node of the pool can match: all of them have the label with an empty value."""
    fields = expression if isinstance(expression, dict) else {}
    if fields.get("key") != label:
        return False
    values = fields.get("values") or []
    match fields.get("operator"):
        case "DoesNotExist" | "Gt" | "Lt":
            return True
        case "In":
            return "" not in values
        case "NotIn":
            return "" in values
        case _:
            return False


def _tolerant(pod: Any, hints: SchedulingHints) -> Iterator[Operation]:
    existing = _sequence(_mapping(pod, "spec"), "tolerations")
    tolerated = [_toleration(fields) for fields in existing if isinstance(fields, dict)]
    missing = [
        {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
        for taint in dict.fromkeys(hints.taints)
        if not any(toleration.covers(taint) for toleration in tolerated)
    ]
    if missing:
        yield _put(pod, [*existing, *missing], *_TOLERATIONS)


def _toleration(fields: Mapping[str, Any]) -> PodToleration:
    return PodToleration(
        fields.get("key") or "",
        fields.get("operator") or "Equal",
        fields.get("value") or "",
        fields.get("effect") or "",
    )


def _spread(pod: Any, hints: SchedulingHints) -> Iterator[Operation]:
    """A soft constraint: a pod that cannot be spread still runs. An existing constraint is kept."""
    existing = _sequence(_mapping(pod, "spec"), "topologySpreadConstraints")
    keys = {constraint.get("topologyKey") for constraint in existing if isinstance(constraint, dict)}
    if not hints.spread_over or hints.spread_over in keys:
        return
    wanted = {
        "maxSkew": 1,
        "topologyKey": hints.spread_over,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {POD_LABEL: hints.pool}},
    }
    yield _put(pod, [*existing, wanted], *_SPREADING)


def _put(pod: Any, value: Any, *steps: str) -> Operation:
    """Set a value, and create missing parents."""
    node = pod
    for depth, step in enumerate(steps[:-1], start=1):
        node = node.get(step) if isinstance(node, dict) else None
        if node is None:
            for inner in reversed(steps[depth:]):
                value = {inner: value}
            return Operation("add", jsonpatch.pointer(*steps[:depth]), value)
    return Operation("add", jsonpatch.pointer(*steps), value)


def _mapping(found: Any, *steps: str) -> dict[str, Any]:
    """The mapping at this path; empty if it is missing or null."""
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
