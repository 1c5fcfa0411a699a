"""A view of a pod for admission, read from the raw object.

The object is never decoded and encoded again, because unknown fields must survive. The view
contains the JSON path of everything that may change, and changes are patches. Only
resources that request cards are read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from croupier.core import jsonpatch, quantity
from croupier.core.jsonpatch import Operation
from croupier.core.model.refusal import Refusal
from croupier.core.pods import effective_requests, request_parser
from croupier.core.pods.effective_requests import Amounts, InitContainerRequest, PodResourceSpec
from croupier.core.quantity import ZERO, Quantity

MAX_CONTAINERS: Final = 256
"""Containers and init containers of a pod with cards. A kubelet starts them one after another, so pods have
a few. Without a limit, a pod of the API server's maximum size would keep the webhook busy for seconds."""
MAX_RESOURCES: Final = 64
"""Different card resources of a pod: more than all MIG profiles of all products."""

_KINDS: Final = {dict: "a mapping", list: "a list", str: "text", bool: "true or false"}


class _MalformedError(Exception):
    """Carries the message for the user to `read`."""


@dataclass(frozen=True, slots=True)
class EnvVariable:
    name: str
    value: str | None = ""
    """None if it comes from another object, which admission cannot read."""


@dataclass(frozen=True, slots=True)
class ContainerView:
    path: str
    """`/spec/containers/0`."""
    name: str
    requests: Amounts = field(default_factory=dict)
    """Its requests of card resources, as written."""
    limits: Amounts = field(default_factory=dict)
    init: bool = False
    """It is an init container or a sidecar."""
    sidecar: bool = False
    has_resources: bool = False
    has_requests: bool = False
    """The requests map exists; otherwise a patch must create it."""
    has_limits: bool = False
    env: tuple[EnvVariable, ...] = ()

    @property
    def asks(self) -> dict[str, Quantity]:
        """Its requests of card resources, including limits without a request."""
        return effective_requests.with_defaults(self.requests, self.limits)


@dataclass(frozen=True, slots=True)
class PodSpecView:
    containers: tuple[ContainerView, ...] = ()
    """Containers first, then init containers and sidecars, in the order of the pod."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    has_metadata: bool = True
    has_annotations: bool = False
    name: str = ""
    """Empty while only `generateName` is known."""
    namespace: str = ""
    scheduler: str = ""
    """Its `schedulerName`; empty or the default if the owner did not set it."""


def read(pod: Any) -> PodSpecView | Refusal:
    """Null and missing fields are empty, as in the API server; wrong types are refused."""
    try:
        top = _mapping(pod, "the pod")
        meta, spec = _mapping(top.get("metadata"), "metadata"), _mapping(top.get("spec"), "spec")
        return PodSpecView(
            containers=_all_containers(spec),
            annotations=_annotations(meta),
            has_metadata=top.get("metadata") is not None,
            has_annotations=meta.get("annotations") is not None,
            name=_text(meta.get("name"), "metadata.name"),
            namespace=_text(meta.get("namespace"), "metadata.namespace"),
            scheduler=_text(spec.get("schedulerName"), "spec.schedulerName"),
        )
    except _MalformedError as nonsense:
        return Refusal(str(nonsense))


def total(spec: PodSpecView, asks: Iterable[Amounts] | None = None) -> dict[str, Quantity]:
    """The effective card requests of the pod; `asks` replaces the requests of its containers."""
    amounts = [view.asks for view in spec.containers] if asks is None else list(asks)
    pairs = list(zip(spec.containers, amounts, strict=True))
    return effective_requests.effective(
        PodResourceSpec(
            containers=[amount for view, amount in pairs if not view.init],
            init_containers=[
                InitContainerRequest(amount, sidecar=view.sidecar) for view, amount in pairs if view.init
            ],
        )
    )


def set_resources(view: ContainerView, *, requests: Amounts, limits: Amounts) -> tuple[Operation, ...]:
    """The patch that sets the container's card resources; other resources stay unchanged."""
    if requests == view.requests and limits == view.limits:
        return ()
    if not view.has_resources:
        made = {"requests": _written(requests), "limits": _written(limits)}
        return (
            Operation(
                "add", f"{view.path}/resources", {key: amounts for key, amounts in made.items() if amounts}
            ),
        )
    return (
        *_set(f"{view.path}/resources/requests", view.requests, requests, exists=view.has_requests),
        *_set(f"{view.path}/resources/limits", view.limits, limits, exists=view.has_limits),
    )


def set_annotation(spec: PodSpecView, key: str, value: str) -> tuple[Operation, ...]:
    """The patch that sets the annotation; empty if the pod already has it."""
    if spec.annotations.get(key) == value:
        return ()
    if not spec.has_metadata:
        return (Operation("add", "/metadata", {"annotations": {key: value}}),)
    if not spec.has_annotations:
        return (Operation("add", "/metadata/annotations", {key: value}),)
    op: jsonpatch.Op = "replace" if key in spec.annotations else "add"
    return (Operation(op, f"/metadata/annotations{jsonpatch.pointer(key)}", value),)


def remove_annotation(spec: PodSpecView, key: str) -> tuple[Operation, ...]:
    """The patch that removes the annotation; empty if the pod does not have it."""
    if key not in spec.annotations:
        return ()
    return (Operation("remove", f"/metadata/annotations{jsonpatch.pointer(key)}"),)


def _set(path: str, old: Amounts, new: Amounts, *, exists: bool) -> tuple[Operation, ...]:
    if new == old:
        return ()
    if not exists:
        return (Operation("add", path, _written(new)),)
    removed = [Operation("remove", path + jsonpatch.pointer(name)) for name in old if name not in new]
    changed = [
        Operation("replace" if name in old else "add", path + jsonpatch.pointer(name), str(amount))
        for name, amount in new.items()
        if old.get(name) != amount
    ]
    return (*removed, *changed)


def _written(amounts: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _all_containers(spec: dict[str, Any]) -> tuple[ContainerView, ...]:
    raw = {key: _list(spec.get(key), f"spec.{key}") for key in ("containers", "initContainers")}
    if (number := sum(map(len, raw.values()))) > MAX_CONTAINERS:
        raise _MalformedError(
            f"the pod has {number} containers and init containers; a pod with cards may have at most"
            f" {MAX_CONTAINERS}: use several pods"
        )
    views = tuple(
        _container(container, key, index)
        for key, containers in raw.items()
        for index, container in enumerate(containers)
    )
    if (number := len({name for view in views for name in view.asks})) > MAX_RESOURCES:
        raise _MalformedError(
            f"the pod requests {number} different card resources; at most {MAX_RESOURCES} are possible:"
            " use several pods"
        )
    return views


def _container(raw: Any, key: str, index: int) -> ContainerView:
    where = f"spec.{key}[{index}]"
    container = _mapping(raw, where)
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
        env=_env(container.get("env"), f"{where}.env"),
    )


def _env(variables: Any, where: str) -> tuple[EnvVariable, ...]:
    if variables is not None and not isinstance(variables, list):
        raise _MalformedError(_type_error(where, "a list", variables))
    return tuple(_variable(raw, f"{where}[{index}]") for index, raw in enumerate(variables or ()))


def _variable(raw: Any, where: str) -> EnvVariable:
    variable = _mapping(raw, where)
    name = _text(variable.get("name"), f"{where}.name")
    if variable.get("valueFrom") is not None:
        return EnvVariable(name, None)
    return EnvVariable(name, _text(variable.get("value"), f"{where}.value"))


def _amounts(resources: dict[str, Any], key: str, where: str) -> Amounts:
    place = f"{where}.resources.{key}"
    amounts = _mapping(resources.get(key), place)
    return {
        name: _amount(written, f"{place}[{name}]")
        for name, written in amounts.items()
        if request_parser.is_card_resource(name)
    }


def _amount(written: Any, where: str) -> Quantity:
    """Unquoted numbers are accepted, as in the API server."""
    if written is None:
        return ZERO
    if isinstance(written, bool) or not isinstance(written, str | int | float):
        raise _MalformedError(_type_error(where, "a quantity", written))
    try:
        return quantity.parse(str(written))
    except quantity.InvalidQuantityError as invalid:
        raise _MalformedError(f"{where}: {invalid}") from invalid


def _annotations(meta: dict[str, Any]) -> dict[str, str]:
    annotations = _mapping(meta.get("annotations"), "metadata.annotations")
    return {key: _text(value, f"metadata.annotations[{key}]") for key, value in annotations.items()}


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _MalformedError(_type_error(where, "a mapping", value))
    for key in value:
        if not isinstance(key, str):
            raise _MalformedError(f"{where}: keys must be strings, but {key!r} is not; put it in quotes")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise _MalformedError(_type_error(where, "a list", value))
    return value or []


def _text(value: Any, where: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _MalformedError(f"{_type_error(where, 'text', value)}; put it in quotes")
    return value


def _type_error(where: str, expected: str, value: Any) -> str:
    return f"{where} must be {expected}, but is {_KINDS.get(type(value), 'a number')}"
