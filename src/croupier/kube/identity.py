"""Which object this is, read off a Struct or a dict alike.

The store needs four fields of any object and must not care which room's type
carries them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Key(NamedTuple):
    """`namespace` is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Identity(NamedTuple):
    key: Key
    uid: str
    version: str
    """resourceVersion: opaque, only good for telling whether two are the same."""


class Metadata(Protocol):
    """What a type's `metadata` must offer to be kept in a store."""

    @property
    def name(self) -> str | None: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def uid(self) -> str | None: ...
    @property
    def resource_version(self) -> str | None: ...


class HasMetadata(Protocol):
    @property
    def metadata(self) -> Metadata: ...


def of_struct(found: HasMetadata) -> Identity:
    meta = found.metadata
    return Identity(Key(meta.namespace or "", meta.name or ""), meta.uid or "", meta.resource_version or "")


def of_dict(found: dict[str, Any]) -> Identity:
    meta = found.get("metadata") or {}
    key = Key(meta.get("namespace") or "", meta.get("name") or "")
    return Identity(key, meta.get("uid") or "", meta.get("resourceVersion") or "")


def reader(type_: Any) -> Callable[[Any], Identity]:
    """How to read the identity of objects decoded to `type_`."""
    return of_dict if type_ is dict else of_struct
