"""The kubelet's gRPC calls that we make and answer, typed: everything that knows grpc's own shapes.

Targets are written `unix:/path`; a bare path is taken for a host name. No options: the defaults carry
4 MiB, which is more devices than a node has, and one that limits a connection's age would end
ListAndWatch. Always the asyncio flavour: the kubelet dials back while Register waits, and a call that
blocks the loop would never be answered.
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
import grpc.aio

from croupier.node.proto import device_plugin_pb2 as plugin
from croupier.node.proto import pod_resources_pb2 as resources

VERSION: Final = "v1beta1"
LONGEST_PATH: Final = 107
"""Bytes of a socket's path; the kernel's bound."""
WITHIN: Final = 15.0
"""Seconds for Register: the kubelet itself gives up dialling us after 10."""
TOLD_WITHIN: Final = 5.0
"""Seconds for its account of devices."""

_REGISTER: Final = "/v1beta1.Registration/Register"
_PLUGIN: Final = "v1beta1.DevicePlugin"
_LISTER: Final = "/v1.PodResourcesLister/"


class KubeletError(Exception):
    """The kubelet did not do what it was asked for; the sentence says what and why."""


class Refusal(Exception):
    """What the kubelet asks for cannot be: it shows the sentence in the pod's status."""


class Plugin(Protocol):
    """What a device plugin answers."""

    def lists(self) -> AsyncGenerator[plugin.ListAndWatchResponse, None]: ...
    async def prefer(
        self, asked: plugin.PreferredAllocationRequest
    ) -> plugin.PreferredAllocationResponse: ...
    async def allocate(self, asked: plugin.AllocateRequest) -> plugin.AllocateResponse: ...


async def serve(answering: Plugin, socket: Path) -> Any:
    """A running server on `socket`. End its lists before stopping it: a stop waits for them."""
    if len(bytes(socket)) > LONGEST_PATH:
        raise KubeletError(f"the path of a socket may have {LONGEST_PATH} bytes, and {socket} has more")
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_handlers(answering),))
    try:
        server.add_insecure_port(f"unix:{socket}")
    except RuntimeError as error:
        raise KubeletError(f"no socket can be made at {socket}; may this process write there?") from error
    await server.start()
    return server


def _handlers(answering: Plugin) -> Any:
    async def options(_: plugin.Empty, __: Any) -> plugin.DevicePluginOptions:
        return plugin.DevicePluginOptions(get_preferred_allocation_available=True)

    async def lists(_: plugin.Empty, __: Any) -> AsyncIterator[plugin.ListAndWatchResponse]:
        # grpc ends it by cancelling or by closing; only so does either reach the inner one at once.
        async with contextlib.aclosing(answering.lists()) as listed:
            async for each in listed:
                yield each

    async def prefer(asked: plugin.PreferredAllocationRequest, context: Any) -> Any:
        return await _answered(answering.prefer(asked), context)

    async def allocate(asked: plugin.AllocateRequest, context: Any) -> Any:
        return await _answered(answering.allocate(asked), context)

    return grpc.method_handlers_generic_handler(
        _PLUGIN,
        {
            "GetDevicePluginOptions": _unary(options, plugin.Empty),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                lists,
                request_deserializer=plugin.Empty.FromString,
                response_serializer=plugin.ListAndWatchResponse.SerializeToString,
            ),
            "GetPreferredAllocation": _unary(prefer, plugin.PreferredAllocationRequest),
            "Allocate": _unary(allocate, plugin.AllocateRequest),
        },
    )


def _unary(answer: Any, asked: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=asked.FromString,
        response_serializer=lambda made: made.SerializeToString(),
    )


async def _answered(answer: Any, context: Any) -> Any:
    try:
        return await answer
    except Refusal as refusal:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))


async def register(directory: Path, endpoint: str, resource: str) -> None:
    """Tell the kubelet of the plugin that serves on `endpoint`, a file in `directory`. Serve first."""
    told = plugin.RegisterRequest(version=VERSION, endpoint=endpoint, resource_name=resource)
    try:
        await _ask(directory / "kubelet.sock", _REGISTER, told, plugin.Empty, within=WITHIN)
    except grpc.aio.AioRpcError as error:
        raise KubeletError(f"the kubelet does not take {resource}: {error.details()}") from error


async def pod_resources(socket: Path) -> resources.ListPodResourcesResponse:
    """Who has which devices."""
    told = resources.ListPodResourcesRequest()
    answer: resources.ListPodResourcesResponse = await _tell(
        socket, "List", told, resources.ListPodResourcesResponse
    )
    return answer


async def allocatable(socket: Path) -> resources.AllocatableResourcesResponse:
    """Which devices there are, whoever has them."""
    told = resources.AllocatableResourcesRequest()
    answer: resources.AllocatableResourcesResponse = await _tell(
        socket, "GetAllocatableResources", told, resources.AllocatableResourcesResponse
    )
    return answer


async def _tell(socket: Path, name: str, told: Any, answer: Any) -> Any:
    try:
        return await _ask(socket, _LISTER + name, told, answer, within=TOLD_WITHIN)
    except grpc.aio.AioRpcError as error:
        raise KubeletError(
            f"the kubelet does not tell who has which devices at {socket}: {error.details()}"
        ) from error


async def _ask(socket: Path, method: str, told: Any, answer: Any, *, within: float) -> Any:
    """On a channel of its own: closing one that others ask on would cancel them, from within."""
    channel = grpc.aio.insecure_channel(f"unix:{socket}")
    try:
        call = channel.unary_unary(
            method,
            request_serializer=type(told).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return await call(told, timeout=within)
    finally:
        await channel.close()
