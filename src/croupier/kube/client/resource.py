"""The names, scope and Python type of a kind.

With these in one value, callers need no URL paths, and every response is typed.
"""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import quote

T = TypeVar("T")

Raw = dict[str, Any]
"""An object with all fields, as the API server sent it."""


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """Responses are decoded to `type`: a msgspec Struct of the fields that are read, or `dict`."""

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
        """The name in RBAC and metrics: `pods`, `reservations.mps.nvidia.com`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def raw(self) -> "Resource[Raw]":
        """The same kind, decoded to dicts with all fields."""
        return replace(self, type=dict)  # type: ignore[arg-type, return-value]  # dict is the type of Raw

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path of the collection, of one object, or of its subresource."""
        if namespace and not self.namespaced:
            raise ValueError(f"{self.kind} is cluster-scoped; omit the namespace {namespace!r}")
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} is namespaced; pass its namespace")
        parts = ["", "apis", self.group, self.version] if self.group else ["", "api", self.version]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=":"))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)
