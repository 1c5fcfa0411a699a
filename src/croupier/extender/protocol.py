"""The requests that kube-scheduler sends to an extender, and the responses. No I/O.

The types of `k8s.io/kube-scheduler/extender/v1` have no JSON names, so the fields are spelled as in Go.
Invalid input raises only `Malformed`, with a message that says why.
"""

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from croupier.api.core_v1 import Pod
from croupier.kube.client import codec
from croupier.kube.client.errors import Undecodable

T = TypeVar("T")

_NAMES: Final = {
    "pod_uid": "PodUID",
    "node_names": "NodeNames",
    "pod_name": "PodName",
    "pod_namespace": "PodNamespace",
    "failed_nodes": "FailedNodes",
    "failed_and_unresolvable_nodes": "FailedAndUnresolvableNodes",
}

FILTER: Final = "filter"
BIND: Final = "bind"


def _spelled(name: str) -> str:
    return _NAMES.get(name, name.capitalize())


_NAME: Final = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


class Malformed(ValueError):
    """The input is not a valid request of kube-scheduler."""


class NodeList(Struct, frozen=True):
    """Whole Node objects, which are not decoded."""


class ExtenderArgs(Struct, frozen=True, rename=_spelled):
    """`nodes` is set instead of `node_names` if the scheduler lacks `nodeCacheCapable: true`."""

    pod: Pod
    node_names: tuple[str, ...] | None = None
    nodes: NodeList | None = None


class ExtenderFilterResult(Struct, frozen=True, rename=_spelled):
    """`failed_nodes` are nodes on which the scheduler may try preemption."""

    node_names: tuple[str, ...] = ()
    failed_nodes: dict[str, str] = field(default_factory=dict)
    failed_and_unresolvable_nodes: dict[str, str] = field(default_factory=dict)
    error: str = ""


class ExtenderBindingArgs(Struct, frozen=True, rename=_spelled):
    pod_name: Annotated[str, Meta(max_length=253, pattern=_NAME)]
    pod_namespace: Annotated[str, Meta(max_length=63, pattern=_NAME)]
    pod_uid: Annotated[str, Meta(min_length=1, max_length=128)]
    node: Annotated[str, Meta(max_length=253, pattern=_NAME)]

    @property
    def key(self) -> str:
        return f"{self.pod_namespace}/{self.pod_name}"


class ExtenderBindingResult(Struct, frozen=True, rename=_spelled):
    error: str = ""


def arguments(body: bytes) -> ExtenderArgs:
    """The pod and its candidate nodes."""
    args = _decode(ExtenderArgs, body)
    if args.node_names is None and args.nodes is not None:
        raise Malformed(
            "the request contains whole nodes: set nodeCacheCapable: true for this extender, "
            "as `croupier scheduler-config` prints it"
        )
    if not (args.pod.metadata.name and args.pod.metadata.namespace and args.pod.metadata.uid):
        raise Malformed("the request names no pod: name, namespace and uid are required")
    return args


def binding(body: bytes) -> ExtenderBindingArgs:
    return _decode(ExtenderBindingArgs, body)


def encode(answer: ExtenderFilterResult | ExtenderBindingResult) -> bytes:
    return _ENCODER.encode(answer)


_ENCODER: Final = msgspec.json.Encoder()


def _decode(type_: type[T], body: bytes) -> T:
    try:
        return codec.decode(type_, body)
    except (Undecodable, msgspec.MsgspecError, RecursionError, UnicodeError) as bad:
        raise Malformed(f"not a valid request of kube-scheduler: {_short(bad)}") from bad


def _short(error: Any) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else f"{text[:200]}…"
