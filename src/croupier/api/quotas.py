"""ResourceQuota: the hard limits of a namespace and their usage."""

from collections.abc import Mapping
from typing import Final

from msgspec import field

from croupier.api.core_v1 import ResourceList
from croupier.api.meta import ObjectMeta
from croupier.api.wire import Wire
from croupier.core import quantity
from croupier.core.pods.quota import QuotaUsage
from croupier.core.quantity import InvalidQuantityError, Quantity
from croupier.kube.client.resource import Resource


class ResourceQuotaStatus(Wire, frozen=True, kw_only=True):
    hard: ResourceList = field(default_factory=dict)
    used: ResourceList = field(default_factory=dict)


class ResourceQuota(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota", True, ResourceQuota)


def limits(quota: ResourceQuota) -> QuotaUsage:
    return QuotaUsage(_amounts(quota.status.hard), _amounts(quota.status.used))


def _amounts(written: Mapping[str, str]) -> dict[str, Quantity]:
    amounts = {}
    for name, text in written.items():
        try:
            amounts[name] = quantity.parse(text)
        except InvalidQuantityError:
            continue
    return amounts
