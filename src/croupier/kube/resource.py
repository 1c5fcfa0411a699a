"""What the API server calls a kind, and where it lives.

One value carries the names, the scope and the Python type of a kind, so that
no caller ever spells a path and every answer comes back typed.
"""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import quote

T = TypeVar("T")

Raw = dict[str, Any]
"""An object exactly as the API server sent it, nothing left out."""


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """`type` is what answers are decoded to: a msgspec Struct of the fields we read, or `dict`."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """`pods`, `reservations.mps.nvidia.com`: how RBAC and metrics name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def raw(self) -> "Resource[Raw]":
        """The same kind, decoded to plain dicts with every field kept."""
        return replace(self, type=dict)  # type: ignore[arg-type, return-value]  # dict is the type of Raw

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path of the collection, of one object, or of its subresource."""
        if namespace and not self.namespaced:
            raise ValueError(f"{self.kind} is cluster-scoped; leave the namespace {namespace!r} out")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} lives in a namespace; say which one")
        parts = ["", "apis", self.group, self.version] if self.group else ["", "api", self.version]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=":"))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)
