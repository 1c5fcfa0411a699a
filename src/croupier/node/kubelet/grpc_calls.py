"""The gRPC calls to and from the kubelet. Only this module uses the grpc package.

Targets have the form `unix:/path`, because grpc takes a bare path for a host name. The default options are
used: 4 MiB suffice for all devices of a node, and a limit of the connection age would end ListAndWatch. All
calls use asyncio: the kubelet connects back while Register waits, so a blocking call would never return.
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
MAX_SOCKET_PATH: Final = 107
"""The longest path of a Unix socket in bytes, limited by the kernel."""
REGISTER_TIMEOUT: Final = 15.0
"""The timeout of Register in seconds. The kubelet itself stops connecting back after 10."""
LIST_TIMEOUT: Final = 5.0
"""The timeout of PodResources calls in seconds."""

_REGISTER: Final = "/v1beta1.Registration/Register"
_PLUGIN: Final = "v1beta1.DevicePlugin"
_LISTER: Final = "/v1.PodResourcesLister/"


class KubeletError(Exception):
    """A call to the kubelet failed. The message says which and why."""


class AllocationRefused(Exception):
    """The requested allocation is impossible. The kubelet shows the message in the pod's status."""


class PluginHandlers(Protocol):
    """The handlers of a device plugin."""

    def lists(self) -> AsyncGenerator[plugin.ListAndWatchResponse, None]: ...
    async def prefer(
        self, asked: plugin.PreferredAllocationRequest
    ) -> plugin.PreferredAllocationResponse: ...
    async def allocate(self, asked: plugin.AllocateRequest) -> plugin.AllocateResponse: ...


async def serve(answering: PluginHandlers, socket: Path) -> Any:
    """Start a server on `socket`. End its ListAndWatch streams before stopping it: stop waits for them."""
    if len(bytes(socket)) > MAX_SOCKET_PATH:
        raise KubeletError(f"the socket path {socket} is longer than {MAX_SOCKET_PATH} bytes")
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_handlers(answering),))
    try:
        server.add_insecure_port(f"unix:{socket}")
    except RuntimeError as error:
        raise KubeletError(f"cannot create the socket {socket}; check that the folder is writable") from error
    await server.start()
    return server


def _handlers(answering: PluginHandlers) -> Any:
    async def options(_: plugin.Empty, __: Any) -> plugin.DevicePluginOptions:
        return plugin.DevicePluginOptions(get_preferred_allocation_available=True)

    async def lists(_: plugin.Empty, __: Any) -> AsyncIterator[plugin.ListAndWatchResponse]:
        # grpc ends the stream by cancelling or closing it; aclosing passes both on at once.
        async with contextlib.aclosing(answering.lists()) as responses:
            async for response in responses:
                yield response

    async def prefer(asked: plugin.PreferredAllocationRequest, context: Any) -> Any:
        return await _respond(answering.prefer(asked), context)

    async def allocate(asked: plugin.AllocateRequest, context: Any) -> Any:
        return await _respond(answering.allocate(asked), context)

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
        response_serializer=lambda response: response.SerializeToString(),
    )


async def _respond(answer: Any, context: Any) -> Any:
    try:
        return await answer
    except AllocationRefused as refusal:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))


async def register(directory: Path, endpoint: str, resource: str) -> None:
    """Register the plugin on `endpoint`, a socket in `directory`, which must already be served."""
    request = plugin.RegisterRequest(version=VERSION, endpoint=endpoint, resource_name=resource)
    try:
        await _call(directory / "kubelet.sock", _REGISTER, request, plugin.Empty, within=REGISTER_TIMEOUT)
    except grpc.aio.AioRpcError as error:
        raise KubeletError(
            f"the kubelet refused to register the device plugin of {resource}: {error.details()}"
        ) from error


async def pod_resources(socket: Path) -> resources.ListPodResourcesResponse:
    """The devices of every container."""
    request = resources.ListPodResourcesRequest()
    response: resources.ListPodResourcesResponse = await _call_lister(
        socket, "List", request, resources.ListPodResourcesResponse
    )
    return response


async def allocatable(socket: Path) -> resources.AllocatableResourcesResponse:
    """All devices that the kubelet knows, allocated or not."""
    request = resources.AllocatableResourcesRequest()
    response: resources.AllocatableResourcesResponse = await _call_lister(
        socket, "GetAllocatableResources", request, resources.AllocatableResourcesResponse
    )
    return response


async def _call_lister(socket: Path, name: str, request: Any, response: Any) -> Any:
    try:
        return await _call(socket, _LISTER + name, request, response, within=LIST_TIMEOUT)
    except grpc.aio.AioRpcError as error:
        raise KubeletError(
            f"the kubelet does not list device assignments at {socket}: {error.details()}"
        ) from error


async def _call(socket: Path, method: str, request: Any, response: Any, *, within: float) -> Any:
    """Each call has its own channel: closing a shared one would cancel the calls of others."""
    channel = grpc.aio.insecure_channel(f"unix:{socket}")
    try:
        call = channel.unary_unary(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        return await call(request, timeout=within)
    finally:
        await channel.close()
