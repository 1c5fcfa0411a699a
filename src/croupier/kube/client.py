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

from croupier.kube import codec, listing, watch
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.codec import Body
from croupier.kube.config import Config
from croupier.kube.errors import Gone
from croupier.kube.listing import Listing, Page
from croupier.kube.resource import Raw, Resource
from croupier.kube.sender import Call, Observe, Patience, Repeat, Sender, unobserved
from croupier.kube.transport import Request, Transport
from croupier.kube.watch import Event

T = TypeVar("T")

PAGE = 500
SILENCE = 90.0
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
class Deletion:
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


@contextlib.asynccontextmanager
async def connect(
    config: Config,
    *,
    clock: Clock | None = None,
    chance: Callable[[], float] = random.random,
    observe: Observe = unobserved,
    patience: Patience | None = None,
    field_manager: str = "croupier",
) -> "AsyncIterator[Client]":
    clock = clock or SystemClock()
    transport = Transport(config, clock)
    sender = Sender(transport, clock, chance=chance, observe=observe, patience=patience or Patience())
    try:
        yield Client(sender, config=config, field_manager=field_manager)
    finally:
        await transport.close()


class Client:
    def __init__(self, sender: Sender, *, config: Config, field_manager: str) -> None:
        self._sender = sender
        self.config = config
        self.field_manager = field_manager

    def acting_as(self, field_manager: str) -> "Client":
        """A client with the same connections that writes with another field manager."""
        return Client(self._sender, config=self.config, field_manager=field_manager)

    def fenced(self, permit: Callable[[], None]) -> "Client":
        """A client with the same connections that calls `permit` before every write; it raises to refuse."""
        sender = self._sender.fenced(permit)
        return Client(sender, config=self.config, field_manager=self.field_manager)

    async def get(
        self,
        resource: Resource[T],
        name: str,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> T:
        request = Request("GET", resource.path(namespace, name, subresource))
        return codec.decode(resource.type, await self._send(resource, "get", request, Repeat.HARMLESS))

    async def list(
        self, resource: Resource[T], selection: Selection = EVERYTHING, *, limit: int = PAGE
    ) -> Listing[T]:
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
        return Listing(items, version, skipped)

    async def pages(
        self, resource: Resource[T], selection: Selection = EVERYTHING, *, limit: int = PAGE
    ) -> AsyncIterator[Page[T]]:
        """Page by page, yielding to the event loop in between. Raises Gone if the continue token expires."""
        query = selection.query()
        if limit:
            query["limit"] = str(limit)
        while True:
            request = Request("GET", resource.path(selection.namespace), query)
            body = await self._send(resource, "list", request, Repeat.HARMLESS)
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
        silence: float = SILENCE,
    ) -> AsyncGenerator[Sequence[Event[T]], None]:
        """Events after `resource_version`, in batches as they arrive, for about `seconds`.

        Returns when the API server closes the watch; raises Unreachable after `idle_timeout` seconds
        without a byte.
        """
        query = {**selection.query(), "watch": "true", "allowWatchBookmarks": "true"}
        query |= {"timeoutSeconds": str(seconds), "resourceVersion": resource_version}
        request = Request("GET", resource.path(selection.namespace), query)
        reader = watch.Reader(resource.type)
        call = Call(request, "watch", resource.full_name, Repeat.NEVER)
        async with self._sender.stream(call, silence=silence) as chunks:
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
        request = Request(
            "POST",
            resource.path(namespace or _of(body, "namespace"), name, subresource),
            self._writing(dry_run),
            codec.encode(resource, body, subresource=subresource),
        )
        repeat = Repeat.NEVER if subresource == "eviction" else Repeat.RISKY
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
        request = Request(
            "PUT",
            resource.path(namespace or _of(body, "namespace"), _of(body, "name"), subresource),
            self._writing(dry_run),
            codec.encode(resource, body, subresource=subresource),
        )
        return codec.decode(resource.type, await self._send(resource, "update", request, Repeat.RISKY))

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
        request = Request(
            "PATCH",
            resource.path(namespace, name, subresource),
            self._writing(dry_run),
            msgspec.json.encode(patch),
            patch_type.value,
        )
        return codec.decode(resource.type, await self._send(resource, "patch", request, Repeat.RISKY))

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
        request = Request(
            "PATCH",
            resource.path(namespace or _of(body, "namespace"), _of(body, "name"), subresource),
            query,
            codec.encode(resource, body),
            PatchType.APPLY.value,
        )
        return codec.decode(resource.type, await self._send(resource, "apply", request, Repeat.HARMLESS))

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        *,
        namespace: str | None = None,
        how: Deletion | None = None,
        dry_run: bool = False,
    ) -> None:
        """Delete an object; finalizers and grace periods may keep it for a while."""
        body = (how or Deletion()).body(dry_run=dry_run)
        request = Request("DELETE", resource.path(namespace, name), body=body)
        await self._send(resource, "delete", request, Repeat.HARMLESS)

    async def delete_collection(
        self,
        resource: Resource[Any],
        selection: Selection,
        *,
        how: Deletion | None = None,
        dry_run: bool = False,
    ) -> None:
        body = (how or Deletion()).body(dry_run=dry_run)
        request = Request("DELETE", resource.path(selection.namespace), selection.query(), body)
        await self._send(resource, "deletecollection", request, Repeat.HARMLESS)

    async def raw(self, request: Request, *, repeat: Repeat = Repeat.NEVER) -> bytes:
        """Request any path, bytes in and out: /version, /readyz, subresources without a type."""
        return await self._sender.send(Call(request, request.method.lower(), "raw", repeat))

    async def _send(self, resource: Resource[Any], verb: str, request: Request, repeat: Repeat) -> bytes:
        return await self._sender.send(Call(request, verb, resource.full_name, repeat))

    def _writing(self, dry_run: bool, field_manager: str | None = None) -> dict[str, str]:
        query = {"fieldManager": field_manager or self.field_manager}
        return {**query, "dryRun": "All"} if dry_run else query


def _of(body: Body, field: str) -> str | None:
    """A field of the body's metadata, whether it is a Struct or a dict."""
    if isinstance(body, dict):
        value = (body.get("metadata") or {}).get(field)
    else:
        value = getattr(getattr(body, "metadata", None), field, None)
    return value or None
