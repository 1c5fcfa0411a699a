"""A fake pod-resources server of a kubelet: simulated nodes run pods without devices."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from croupier.node.proto import pod_resources_pb2 as resources


@dataclass
class FakePodResources:
    """`holds["default/one"] = ("gpu.deckhouse.io/team", ["card"])`: those devices, of that resource."""

    holds: dict[str, tuple[str, list[str]]] = field(default_factory=dict)

    async def list(self, _: Any, __: Any) -> resources.ListPodResourcesResponse:
        return resources.ListPodResourcesResponse(
            pod_resources=[_pod_resources(pod, *held) for pod, held in self.holds.items()]
        )

    async def allocatable(self, _: Any, __: Any) -> resources.AllocatableResourcesResponse:
        return resources.AllocatableResourcesResponse()


def _pod_resources(pod: str, resource: str, devices: list[str]) -> resources.PodResources:
    namespace, _, name = pod.partition("/")
    assigned = resources.ContainerDevices(resource_name=resource, device_ids=devices)
    main = resources.ContainerResources(name="main", devices=[assigned])
    return resources.PodResources(name=name, namespace=namespace, containers=[main])


@asynccontextmanager
async def serving(socket: Path, made: FakePodResources | None = None) -> AsyncIterator[FakePodResources]:
    made = made or FakePodResources()
    server = grpc.aio.server()
    calls = {
        "List": _call(made.list, resources.ListPodResourcesRequest),
        "GetAllocatableResources": _call(made.allocatable, resources.AllocatableResourcesRequest),
    }
    handler = grpc.method_handlers_generic_handler("v1.PodResourcesLister", calls)
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield made
    finally:
        await server.stop(None)


def _call(answer: Any, asked: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=asked.FromString,
        response_serializer=lambda made: made.SerializeToString(),
    )
