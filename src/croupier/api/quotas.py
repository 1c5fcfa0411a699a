"""ResourceQuota: the hard limits of a namespace and their usage."""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import field

from croupier.api.core_v1 import ResourceList
from croupier.api.meta import ObjectMeta
from croupier.api.wire import Wire
from croupier.core import quantity
from croupier.core.claims.budget import NamespaceQuota, QuotaScope
from croupier.core.pods.quota import QuotaUsage
from croupier.core.quantity import InvalidQuantityError, Quantity
from croupier.kube.client.resource import Resource


class ScopeRequirement(Wire, frozen=True, kw_only=True):
    scope_name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class ScopeSelector(Wire, frozen=True, kw_only=True):
    match_expressions: tuple[ScopeRequirement, ...] = ()


class ResourceQuotaSpec(Wire, frozen=True, kw_only=True):
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector = ScopeSelector()


class ResourceQuotaStatus(Wire, frozen=True, kw_only=True):
    hard: ResourceList = field(default_factory=dict)
    used: ResourceList = field(default_factory=dict)


class ResourceQuota(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota", True, ResourceQuota)


def limits(quota: ResourceQuota) -> QuotaUsage:
    return QuotaUsage(_amounts(quota.status.hard), _amounts(quota.status.used))


def of_namespace(listed: Iterable[ResourceQuota]) -> tuple[NamespaceQuota, ...]:
    """The quotas that limit the Reservations of a namespace; `listed` are its own."""
    return tuple(NamespaceQuota(quota.metadata.name, limits(quota), _scopes(quota)) for quota in listed)


def _scopes(quota: ResourceQuota) -> tuple[QuotaScope, ...]:
    named = (QuotaScope(name) for name in quota.spec.scopes)
    selected = (
        QuotaScope(one.scope_name, one.operator, frozenset(one.values))
        for one in quota.spec.scope_selector.match_expressions
    )
    return (*named, *selected)


def _amounts(written: Mapping[str, str]) -> dict[str, Quantity]:
    amounts = {}
    for name, text in written.items():
        try:
            amounts[name] = quantity.parse(text)
        except InvalidQuantityError:
            continue
    return amounts
