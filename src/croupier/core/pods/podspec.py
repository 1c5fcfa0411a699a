"""What admission needs to know of a pod, read from the object as it came.

The object itself is never decoded and encoded again: fields we have never heard of must
survive. So this is a view with the path of everything that may be changed, and what is
changed comes out as a patch. Only resources that concern cards are read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from croupier.core import jsonpatch, quantity
from croupier.core.jsonpatch import Operation
from croupier.core.ledgers.ledger import Refused
from croupier.core.pods import effective, request
from croupier.core.pods.effective import Amounts, Early, Footprint
from croupier.core.quantity import ZERO, Quantity

_KINDS: Final = {dict: "a mapping", list: "a list", str: "text", bool: "true or false"}


class _NonsenseError(Exception):
    """Carries the sentence out of the depth of reading."""


@dataclass(frozen=True, slots=True)
class ContainerView:
    path: str
    """`/spec/containers/0`."""
    name: str
    requests: Amounts = field(default_factory=dict)
    """What concerns cards of its requests, as written."""
    limits: Amounts = field(default_factory=dict)
    init: bool = False
    """It is an init container; a sidecar is one too."""
    sidecar: bool = False
    has_resources: bool = False
    has_requests: bool = False
    """There is a map of requests, whatever is in it; else a patch must make one."""
    has_limits: bool = False

    @property
    def asks(self) -> dict[str, Quantity]:
        """What it asks for of cards: a limit without a request is a request, as the API server makes it."""
        return {**self.limits, **self.requests}


@dataclass(frozen=True, slots=True)
class PodSpec:
    containers: tuple[ContainerView, ...] = ()
    """Containers first, then init containers and sidecars, in the order of the pod."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    has_metadata: bool = True
    has_annotations: bool = False
    name: str = ""
    """Empty while only `generateName` is known."""
    namespace: str = ""
    scheduler: str = ""
    """Who is to place it; empty or the default one if its owner said nothing."""


def read(pod: Any) -> PodSpec | Refused:
    """Nulls and absent fields are empty, as for the API server; what has the wrong type is refused."""
    try:
        top = _mapping(pod, "the pod")
        meta, spec = _mapping(top.get("metadata"), "metadata"), _mapping(top.get("spec"), "spec")
        return PodSpec(
            containers=(*_containers(spec, "containers"), *_containers(spec, "initContainers")),
            annotations=_annotations(meta),
            has_metadata=top.get("metadata") is not None,
            has_annotations=meta.get("annotations") is not None,
            name=_text(meta.get("name"), "metadata.name"),
            namespace=_text(meta.get("namespace"), "metadata.namespace"),
            scheduler=_text(spec.get("schedulerName"), "spec.schedulerName"),
        )
    except _NonsenseError as nonsense:
        return Refused(str(nonsense))


def total(spec: PodSpec, asks: Iterable[Amounts] | None = None) -> dict[str, Quantity]:
    """What the pod as a whole asks for of cards; `asks` may stand in for what its containers ask."""
    amounts = [view.asks for view in spec.containers] if asks is None else list(asks)
    pairs = list(zip(spec.containers, amounts, strict=True))
    return effective.requests(
        Footprint(
            containers=[amount for view, amount in pairs if not view.init],
            before=[Early(amount, sidecar=view.sidecar) for view, amount in pairs if view.init],
        )
    )


def set_resources(view: ContainerView, *, requests: Amounts, limits: Amounts) -> tuple[Operation, ...]:
    """What makes its card resources these and nothing else; all other resources stay as they are."""
    if requests == view.requests and limits == view.limits:
        return ()
    if not view.has_resources:
        made = {"requests": _written(requests), "limits": _written(limits)}
        return (Operation("add", f"{view.path}/resources", {key: one for key, one in made.items() if one}),)
    return (
        *_set(f"{view.path}/resources/requests", view.requests, requests, exists=view.has_requests),
        *_set(f"{view.path}/resources/limits", view.limits, limits, exists=view.has_limits),
    )


def set_annotation(spec: PodSpec, key: str, value: str) -> tuple[Operation, ...]:
    """What gives the pod this annotation; nothing if it has it."""
    if spec.annotations.get(key) == value:
        return ()
    if not spec.has_metadata:
        return (Operation("add", "/metadata", {"annotations": {key: value}}),)
    if not spec.has_annotations:
        return (Operation("add", "/metadata/annotations", {key: value}),)
    op: jsonpatch.Op = "replace" if key in spec.annotations else "add"
    return (Operation(op, f"/metadata/annotations{jsonpatch.pointer(key)}", value),)


def _set(path: str, old: Amounts, new: Amounts, *, exists: bool) -> tuple[Operation, ...]:
    if new == old:
        return ()
    if not exists:
        return (Operation("add", path, _written(new)),)
    gone = [Operation("remove", path + jsonpatch.pointer(name)) for name in old if name not in new]
    come = [
        Operation("replace" if name in old else "add", path + jsonpatch.pointer(name), str(amount))
        for name, amount in new.items()
        if old.get(name) != amount
    ]
    return (*gone, *come)


def _written(amounts: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _containers(spec: dict[str, Any], key: str) -> list[ContainerView]:
    found = spec.get(key)
    if found is not None and not isinstance(found, list):
        raise _NonsenseError(_wrong(f"spec.{key}", "a list", found))
    return [_container(one, key, index) for index, one in enumerate(found or ())]


def _container(found: Any, key: str, index: int) -> ContainerView:
    where = f"spec.{key}[{index}]"
    container = _mapping(found, where)
    init = key == "initContainers"
    resources = _mapping(container.get("resources"), f"{where}.resources")
    return ContainerView(
        path=f"/spec/{key}/{index}",
        name=_text(container.get("name"), f"{where}.name"),
        requests=_amounts(resources, "requests", where),
        limits=_amounts(resources, "limits", where),
        init=init,
        sidecar=init and container.get("restartPolicy") == "Always",
        has_resources=container.get("resources") is not None,
        has_requests=resources.get("requests") is not None,
        has_limits=resources.get("limits") is not None,
    )


def _amounts(resources: dict[str, Any], key: str, where: str) -> Amounts:
    place = f"{where}.resources.{key}"
    found = _mapping(resources.get(key), place)
    return {
        name: _amount(written, f"{place}[{name}]")
        for name, written in found.items()
        if request.concerns(name)
    }


def _amount(written: Any, where: str) -> Quantity:
    """A number without quotes is one too, as for the API server."""
    if written is None:
        return ZERO
    if isinstance(written, bool) or not isinstance(written, str | int | float):
        raise _NonsenseError(_wrong(where, "a quantity", written))
    try:
        return quantity.parse(str(written))
    except quantity.InvalidQuantityError as invalid:
        raise _NonsenseError(f"{where}: {invalid}") from invalid


def _annotations(meta: dict[str, Any]) -> dict[str, str]:
    found = _mapping(meta.get("annotations"), "metadata.annotations")
    return {key: _text(value, f"metadata.annotations[{key}]") for key, value in found.items()}


def _mapping(found: Any, where: str) -> dict[str, Any]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise _NonsenseError(_wrong(where, "a mapping", found))
    for key in found:
        if not isinstance(key, str):
            raise _NonsenseError(f"{where} must have names for keys, and has {key!r}; put it in quotes")
    return found


def _text(found: Any, where: str) -> str:
    if found is None:
        return ""
    if not isinstance(found, str):
        raise _NonsenseError(f"{_wrong(where, 'text', found)}; put it in quotes")
    return found


def _wrong(where: str, wanted: str, found: Any) -> str:
    return f"{where} must be {wanted}, and is {_KINDS.get(type(found), 'a number')}"
