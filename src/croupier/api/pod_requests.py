"""The resource requests of a pod, counted like the scheduler does.

During a resize there are three values: the request in the spec, the amount allocated by the kubelet, and the
amount the container has. The largest counts, because each of them may become effective. The spec of an
infeasible resize is not counted.

Most pods are replicas of others, so the totals of equal requests are computed once and shared.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from msgspec import field

from croupier.api.core_v1 import Container, ContainerStatus, Node, Pod, ResourceList
from croupier.api.wire import Wire
from croupier.core import quantity
from croupier.core.availability import POD_SLOTS, AccountedPod
from croupier.core.pods import effective_requests
from croupier.core.pods.effective_requests import Amounts, InitContainerRequest, PodResourceSpec
from croupier.core.quantity import NANO, Quantity
from croupier.kube.client.resource import Resource

CACHE_SIZE: Final = 8192
"""The size of the cache. A large cluster has far fewer different requests."""

QuantityTexts: TypeAlias = tuple[tuple[str, str], ...]
"""Resource names and quantities as text."""

_ONE_POD: Final = {POD_SLOTS: Quantity(NANO)}


class _Requests(Wire, frozen=True, kw_only=True):
    requests: ResourceList = field(default_factory=dict)


class _Container(Wire, frozen=True, kw_only=True):
    name: str
    resources: _Requests = _Requests()
    restart_policy: str = ""

    @property
    def is_sidecar(self) -> bool:
        return self.restart_policy == "Always"


class _Status(Wire, frozen=True, kw_only=True):
    name: str
    resources: _Requests | None = None
    allocated_resources: ResourceList = field(default_factory=dict)


class _Condition(Wire, frozen=True, kw_only=True):
    type: str
    reason: str = ""


class _Metadata(Wire, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Spec(Wire, frozen=True, kw_only=True):
    node_name: str = ""
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    overhead: ResourceList = field(default_factory=dict)
    resources: _Requests = _Requests()


class _PodStatus(Wire, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_Status, ...] = ()
    init_container_statuses: tuple[_Status, ...] = ()
    resources: _Requests | None = None
    allocated_resources: ResourceList = field(default_factory=dict)


class LeanPod(Wire, frozen=True, kw_only=True):
    """A pod with only the fields needed for its requests. It decodes twice as fast and uses less memory."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _PodStatus = _PodStatus()

    @property
    def is_finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")


class _NodeSpec(Wire, frozen=True, kw_only=True):
    unschedulable: bool = False


class _NodeStatus(Wire, frozen=True, kw_only=True):
    capacity: ResourceList = field(default_factory=dict)
    allocatable: ResourceList = field(default_factory=dict)


class LeanNode(Wire, frozen=True, kw_only=True):
    """A node with only the fields needed for its capacity."""

    metadata: _Metadata = _Metadata()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


LEAN_PODS: Final = Resource("", "v1", "pods", "Pod", True, LeanPod)
LEAN_NODES: Final = Resource("", "v1", "nodes", "Node", False, LeanNode)


def occupant(pod: Pod | LeanPod) -> AccountedPod | None:
    """The requests of a bound pod. None if the pod is not bound or has finished."""
    node = pod.spec.node_name
    if not node or pod.is_finished:
        return None
    return AccountedPod(pod.metadata.key, pod.metadata.uid, node, requests(pod))


def requests(pod: Pod | LeanPod) -> Amounts:
    """The effective requests, including resizes, overhead and one unit of the resource `pods`."""
    return _total(_request_shape(pod))


def capacity_of(node: Node | LeanNode) -> tuple[Amounts, Amounts]:
    """The allocatable resources and the capacity of the node."""
    return _amounts(node.status.allocatable.items()), _amounts(node.status.capacity.items())


class _RequestShape(NamedTuple):
    containers: tuple[QuantityTexts, ...]
    before: tuple[tuple[QuantityTexts, bool], ...]
    overhead: QuantityTexts
    pod_level: QuantityTexts


def _request_shape(pod: Pod | LeanPod) -> _RequestShape:
    spec, status = pod.spec, pod.status
    infeasible = _infeasible(pod)
    running = {container.name: container for container in status.container_statuses}
    sidecars = (
        {container.name: container for container in status.init_container_statuses}
        if spec.init_containers
        else {}
    )
    return _RequestShape(
        tuple([_container_requests(main, running.get(main.name), infeasible) for main in spec.containers]),
        tuple(
            [
                (
                    _container_requests(
                        init, sidecars.get(init.name) if init.is_sidecar else None, infeasible
                    ),
                    init.is_sidecar,
                )
                for init in spec.init_containers
            ]
        ),
        tuple(spec.overhead.items()),
        _pod_level(pod, infeasible) if spec.resources.requests else (),
    )


@lru_cache(maxsize=CACHE_SIZE)
def _total(shape: _RequestShape) -> Amounts:
    """The totals of these requests. Pods with equal requests share the result, so it must not be changed."""
    footprint = PodResourceSpec(
        containers=[_amounts(written) for written in shape.containers],
        init_containers=[
            InitContainerRequest(_amounts(written), sidecar) for written, sidecar in shape.before
        ],
        overhead=_amounts(shape.overhead),
        pod_level=_amounts(shape.pod_level),
    )
    return effective_requests.effective(footprint) | _ONE_POD


def _infeasible(pod: Pod | LeanPod) -> bool:
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _container_requests(
    container: Container | _Container, status: ContainerStatus | _Status | None, infeasible: bool
) -> QuantityTexts:
    asked = container.resources.requests
    if status is None or status.resources is None:
        return tuple(asked.items())
    return _largest(asked, status.resources.requests, status.allocated_resources, infeasible)


def _pod_level(pod: Pod | LeanPod, infeasible: bool) -> QuantityTexts:
    """The pod-level requests of the resources named at pod level in the spec."""
    asked, has = pod.spec.resources.requests, pod.status.resources
    if has is None:
        return tuple(asked.items())
    most = dict(_largest(asked, has.requests, pod.status.allocated_resources, infeasible))
    return tuple((name, most.get(name, "0")) for name in asked)


def _largest(
    asked: ResourceList, has: ResourceList, promised: ResourceList, infeasible: bool
) -> QuantityTexts:
    if has == asked and (promised == asked or not promised):
        return tuple(asked.items())  # the usual case: no resize is in progress
    most: ResourceList = {}
    for written in (has, promised) if infeasible else (asked, has, promised):
        for name, text in written.items():
            if name not in most or quantity.parse(most[name]) < quantity.parse(text):
                most[name] = text
    return tuple(most.items())


def _amounts(written: Iterable[tuple[str, str]]) -> dict[str, Quantity]:
    return {name: quantity.parse(text) for name, text in written}
