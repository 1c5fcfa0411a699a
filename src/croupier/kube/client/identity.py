"""The identity of an object, read from a Struct or a dict.

The store needs four metadata fields of any object, regardless of the package that
defines its type.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


class Key(NamedTuple):
    """`namespace` is empty for cluster-scoped objects."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ObjectIdentity(NamedTuple):
    key: Key
    uid: str
    version: str
    """The resourceVersion: opaque, only comparable for equality."""


class ObjectMetadata(Protocol):
    """The metadata fields that an object in a store must have."""

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
    def metadata(self) -> ObjectMetadata: ...


def of_struct(found: HasMetadata) -> ObjectIdentity:
    meta = found.metadata
    return ObjectIdentity(
        Key(meta.namespace or "", meta.name or ""), meta.uid or "", meta.resource_version or ""
    )


def of_dict(found: dict[str, Any]) -> ObjectIdentity:
    meta = found.get("metadata") or {}
    key = Key(meta.get("namespace") or "", meta.get("name") or "")
    return ObjectIdentity(key, meta.get("uid") or "", meta.get("resourceVersion") or "")


def reader(type_: Any) -> Callable[[Any], ObjectIdentity]:
    """The function that reads the identity of objects decoded to `type_`."""
    return of_dict if type_ is dict else of_struct
