"""Client for every verb of the API server, typed by resource.

Reads return Structs with the few fields that Croupier knows. `update` takes whole
objects as dicts only, because a PUT of a partly decoded object would erase the
other fields; `merge.py` merges typed changes into the whole object.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeVar, overload

import msgspec

from croupier.kube.client import codec, listing, watch_protocol
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.codec import Body
from croupier.kube.client.config import Config
from croupier.kube.client.errors import Gone
from croupier.kube.client.listing import ListPage, ObjectList
from croupier.kube.client.resource import Raw, Resource
from croupier.kube.client.retry import (
    ApiCall,
    RequestObserver,
    RetryingSender,
    RetryOptions,
    RetrySafety,
    ignore_attempt,
)
from croupier.kube.client.server_clock import ServerClock
from croupier.kube.client.transport import ApiRequest, Transport
from croupier.kube.client.watch_protocol import WatchEvent

T = TypeVar("T")

PAGE_SIZE = 500
WATCH_IDLE_TIMEOUT = 90.0
"""Seconds without a byte after which a watch counts as dead; bookmarks arrive about once a minute."""


class PatchType(Enum):
    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Selection:
    """Namespace, label and field selectors of a list or watch; all objects by default."""

    namespace: str | None = None
    labels: str | None = None
    fields: str | None = None

    def query(self) -> dict[str, str]:
        pairs = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: value for name, value in pairs.items() if value}


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Delete options; `uid` and `resource_version` are preconditions against deleting a successor."""

    uid: str | None = None
    resource_version: str | None = None
    propagation: Literal["Foreground", "Background", "Orphan"] | None = None
    grace_seconds: int | None = None

    def body(self, *, dry_run: bool) -> bytes:
        options: Raw = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if dry_run:  # as a query parameter it is ignored when there is a body: the delete would be real
            options["dryRun"] = ["All"]
        guards = {"uid": self.uid, "resourceVersion": self.resource_version}
        if given := {name: value for name, value in guards.items() if value is not None}:
            options["preconditions"] = given
        if self.propagation is not None:
            options["propagationPolicy"] = self.propagation
        if self.grace_seconds is not None:
            options["gracePeriodSeconds"] = self.grace_seconds
        return msgspec.json.encode(options)


class ApiGroup(msgspec.Struct, frozen=True):
    name: str


class GroupList(msgspec.Struct, frozen=True):
    """The answer to `GET /apis`."""

    groups: list[ApiGroup]


@contextlib.asynccontextmanager
async def connect(
    config: Config,
    *,
    clock: Clock | None = None,
    chance: Callable[[], float] = random.random,
    observe: RequestObserver = ignore_attempt,
    retry: RetryOptions | None = None,
    field_manager: str = "croupier",
) -> "AsyncIterator[Client]":
    clock = clock or SystemClock()
    transport = Transport(config, clock)
    sender = RetryingSender(transport, clock, chance=chance, observe=observe, retry=retry or RetryOptions())
    try:
        yield Client(sender, config=config, field_manager=field_manager, clock=transport.clock)
    finally:
        await transport.close()


class Client:
    def __init__(
        self, sender: RetryingSender, *, config: Config, field_manager: str, clock: ServerClock
    ) -> None:
        self._sender = sender
        self.config = config
        self.field_manager = field_manager
        self.clock = clock
        """The time of the API server, for times that are written into objects or compared with them."""

    def with_field_manager(self, field_manager: str) -> "Client":
        """A client with the same connections that writes with another field manager."""
        return Client(self._sender, config=self.config, field_manager=field_manager, clock=self.clock)

    def fenced(self, permit: Callable[[], None]) -> "Client":
        """A client with the same connections that calls `permit` before every write; it raises to refuse."""
        sender = self._sender.fenced(permit)
        return Client(sender, config=self.config, field_manager=self.field_manager, clock=self.clock)

    def prioritized(self, timeout: float) -> "Client":
        """A client for renewals of Leases, whose requests never wait for others of this process.

        It has connections of its own. An attempt takes at most `timeout` seconds.
        """
        sender = self._sender.prioritized(timeout)
        return Client(sender, config=self.config, field_manager=self.field_manager, clock=self.clock)

    async def get(
        self,
        resource: Resource[T],
        name: str,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> T:
        request = ApiRequest("GET", resource.path(namespace, name, subresource))
        return codec.decode(resource.type, await self._send(resource, "get", request, RetrySafety.IDEMPOTENT))

    async def list(
        self, resource: Resource[T], selection: Selection = EVERYTHING, *, limit: int = PAGE_SIZE
    ) -> ObjectList[T]:
        """All objects at one version, fetched in pages. If the continue token expires, list again unpaged."""
        items: list[T] = []
        skipped: tuple[str, ...] = ()
        version = ""
        try:
            async for page in self.pages(resource, selection, limit=limit):
                items += page.items
                skipped += page.skipped
                version = page.resource_version
        except Gone:
            if not limit:
                raise
            return await self.list(resource, selection, limit=0)
        return ObjectList(items, version, skipped)

    async def pages(
        self, resource: Resource[T], selection: Selection = EVERYTHING, *, limit: int = PAGE_SIZE
    ) -> AsyncIterator[ListPage[T]]:
        """Page by page, yielding to the event loop in between. Raises Gone if the continue token expires."""
        query = selection.query()
        if limit:
            query["limit"] = str(limit)
        while True:
            request = ApiRequest("GET", resource.path(selection.namespace), query)
            body = await self._send(resource, "list", request, RetrySafety.IDEMPOTENT)
            page = listing.page(resource.type, body)
            yield page
            if not page.next:
                return
            query = {**query, "continue": page.next}
            await asyncio.sleep(0)

    async def watch(
        self,
        resource: Resource[T],
        selection: Selection = EVERYTHING,
        *,
        resource_version: str = "",
        seconds: int = 300,
        idle_timeout: float = WATCH_IDLE_TIMEOUT,
    ) -> AsyncGenerator[Sequence[WatchEvent[T]], None]:
        """Events after `resource_version`, in batches as they arrive, for about `seconds`.

        The first batch is empty: the API server has opened the watch. Returns when the API server closes the
        watch; raises Unreachable after `idle_timeout` seconds without a byte.
        """
        query = {**selection.query(), "watch": "true", "allowWatchBookmarks": "true"}
        query |= {"timeoutSeconds": str(seconds), "resourceVersion": resource_version}
        request = ApiRequest("GET", resource.path(selection.namespace), query)
        reader = watch_protocol.WatchDecoder(resource.type)
        call = ApiCall(request, "watch", resource.full_name, RetrySafety.NEVER)
        async with self._sender.stream(call, idle_timeout=idle_timeout) as chunks:
            yield ()
            async for chunk in chunks:
                if events := reader.feed(chunk):
                    yield events

    @overload
    async def create(
        self, resource: Resource[T], body: Body, *, namespace: str | None = None, dry_run: bool = False
    ) -> T: ...

    @overload
    async def create(
        self,
        resource: Resource[T],
        body: Body,
        *,
        namespace: str | None = None,
        name: str,
        subresource: str,
        dry_run: bool = False,
    ) -> Raw: ...

    async def create(
        self,
        resource: Resource[T],
        body: Body,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> T | Raw:
        """Create an object, or with `name` and `subresource` a Binding, Eviction or TokenRequest of one."""
        request = ApiRequest(
            "POST",
            resource.path(namespace or _metadata_field(body, "namespace"), name, subresource),
            self._writing(dry_run),
            codec.encode(resource, body, subresource=subresource),
        )
        repeat = RetrySafety.NEVER if subresource == "eviction" else RetrySafety.NOT_IDEMPOTENT
        response = await self._send(resource, "create", request, repeat)
        if subresource is None:
            return codec.decode(resource.type, response)
        return codec.decode(dict, response)

    async def update(
        self,
        resource: Resource[T],
        body: Raw,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Replace the whole object; `metadata.resourceVersion` in the body is the precondition."""
        if isinstance(body, msgspec.Struct):
            raise TypeError(
                f"a PUT of a {type(body).__name__} would erase the fields it does not know; "
                "merge it into the whole object with merge.typed, or use patch"
            )
        request = ApiRequest(
            "PUT",
            resource.path(
                namespace or _metadata_field(body, "namespace"), _metadata_field(body, "name"), subresource
            ),
            self._writing(dry_run),
            codec.encode(resource, body, subresource=subresource),
        )
        return codec.decode(
            resource.type, await self._send(resource, "update", request, RetrySafety.NOT_IDEMPOTENT)
        )

    async def patch(  # noqa: PLR0913  # the parts of a PATCH
        self,
        resource: Resource[T],
        name: str,
        patch: Raw | Sequence[Raw],
        *,
        namespace: str | None = None,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> T:
        request = ApiRequest(
            "PATCH",
            resource.path(namespace, name, subresource),
            self._writing(dry_run),
            msgspec.json.encode(patch),
            patch_type.value,
        )
        return codec.decode(
            resource.type, await self._send(resource, "patch", request, RetrySafety.NOT_IDEMPOTENT)
        )

    async def apply(  # noqa: PLR0913  # the parts of an apply
        self,
        resource: Resource[T],
        body: Body,
        *,
        namespace: str | None = None,
        field_manager: str | None = None,
        force: bool = False,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> T:
        """Server-side apply: own these fields. Creates a missing object; `force` takes over conflicts."""
        query = self._writing(dry_run, field_manager)
        if force:
            query["force"] = "true"
        request = ApiRequest(
            "PATCH",
            resource.path(
                namespace or _metadata_field(body, "namespace"), _metadata_field(body, "name"), subresource
            ),
            query,
            codec.encode(resource, body),
            PatchType.APPLY.value,
        )
        return codec.decode(
            resource.type, await self._send(resource, "apply", request, RetrySafety.IDEMPOTENT)
        )

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        *,
        namespace: str | None = None,
        how: DeleteOptions | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete an object; finalizers and grace periods may keep it for a while."""
        body = (how or DeleteOptions()).body(dry_run=dry_run)
        request = ApiRequest("DELETE", resource.path(namespace, name), body=body)
        await self._send(resource, "delete", request, RetrySafety.IDEMPOTENT)

    async def delete_collection(
        self,
        resource: Resource[Any],
        selection: Selection,
        *,
        how: DeleteOptions | None = None,
        dry_run: bool = False,
    ) -> None:
        body = (how or DeleteOptions()).body(dry_run=dry_run)
        request = ApiRequest("DELETE", resource.path(selection.namespace), selection.query(), body)
        await self._send(resource, "deletecollection", request, RetrySafety.IDEMPOTENT)

    async def raw(self, request: ApiRequest, *, repeat: RetrySafety = RetrySafety.NEVER) -> bytes:
        """Request any path, bytes in and out: /version, /readyz, subresources without a type."""
        return await self._sender.send(ApiCall(request, request.method.lower(), "raw", repeat))

    async def api_groups(self, *, timeout: float) -> frozenset[str]:  # noqa: ASYNC109  # aiohttp's own deadline
        """The API groups that are served: one short request, which also shows that the server answers."""
        call = ApiCall(ApiRequest("GET", "/apis"), "get", "raw", RetrySafety.NEVER)
        listed = codec.decode(GroupList, await self._sender.send_once(call, timeout=timeout))
        return frozenset(group.name for group in listed.groups)

    async def _send(
        self, resource: Resource[Any], verb: str, request: ApiRequest, repeat: RetrySafety
    ) -> bytes:
        return await self._sender.send(ApiCall(request, verb, resource.full_name, repeat))

    def _writing(self, dry_run: bool, field_manager: str | None = None) -> dict[str, str]:
        query = {"fieldManager": field_manager or self.field_manager}
        return {**query, "dryRun": "All"} if dry_run else query


def _metadata_field(body: Body, field: str) -> str | None:
    """A field of the body's metadata, whether it is a Struct or a dict."""
    if isinstance(body, dict):
        value = (body.get("metadata") or {}).get(field)
    else:
        value = getattr(getattr(body, "metadata", None), field, None)
    return value or None
