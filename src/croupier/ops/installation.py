"""Reads the cluster of an installation, for doctor and uninstall."""

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar

from croupier.api import kinds
from croupier.api.core_v1 import Lease
from croupier.api.meta import PART_OF_SELECTOR
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.kube.client.api_client import EVERYTHING, Client, Selection
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import Forbidden, KubeError, NotFound
from croupier.kube.client.resource import Resource
from croupier.wiring import elections

T = TypeVar("T")

ELECTIONS: Final = {
    "gpu-inventory-controller": elections.INVENTORY,
    "gpu-bootstrap-controller": elections.BOOTSTRAP,
    "gpupool-controller": elections.POOLS,
    "croupier-ledger": elections.LEDGER,
    elections.LIMITS: elections.LIMITS,
}
"""Deployments with leader election, and their Leases."""
_PARTS: Final = Selection(labels=PART_OF_SELECTOR)
_TRACES: Final[tuple[tuple[tuple[Resource[Any], Selection], ...], ...]] = (
    ((kinds.DEPLOYMENTS, _PARTS), (kinds.DAEMON_SETS, _PARTS)),
    ((kinds.SERVICE_ACCOUNTS.raw, _PARTS),),
    ((kinds.LEASES.raw, Selection(fields=f"metadata.name={elections.POOLS}")),),
)
"""What shows the namespace of an installation: processes, else their accounts, else what they left."""


class SeveralInstallations(KubeError):
    """More than one namespace has an installation; the message names them."""


async def find_namespace(api: Client) -> str:
    """The namespace of the installation; the default one if there is none or it may not be searched for."""
    with suppress(Forbidden):
        for traces in _TRACES:
            items = [item for kind, selection in traces for item in (await api.list(kind, selection)).items]
            found: list[str] = sorted({item["metadata"]["namespace"] for item in items})
            if len(found) > 1:
                raise SeveralInstallations(
                    f"Croupier is installed in the namespaces {', '.join(found)}: "
                    "choose one with --namespace, and remove the others (croupier uninstall)"
                )
            if found:
                return found[0]
    return DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class Installation:
    """The cluster, and the namespace of Croupier in it."""

    api: Client
    namespace: str
    wait: float = 60.0
    """Seconds that uninstall waits for pods to end and for CRDs to be deleted."""
    clock: Clock = field(default_factory=SystemClock)
    list_once: bool = False
    """List each kind only once, for checks that must agree with each other."""
    _listed: dict[str, Any] = field(init=False, default_factory=dict)

    async def all(self, resource: Resource[T], selection: Selection = EVERYTHING) -> list[T]:
        """All objects; a kind that is not installed has none."""
        key = f"{resource.full_name} {resource.type} {selection}"
        if self.list_once and key in self._listed:
            known: list[T] = self._listed[key]
            return known
        try:
            items = list((await self.api.list(resource, selection)).items)
        except NotFound:
            items = []
        self._listed[key] = items
        return items

    def here(self, labels: str | None = None, *, name: str = "") -> Selection:
        """Objects in Croupier's namespace."""
        return Selection(self.namespace, labels=labels, fields=f"metadata.name={name}" if name else None)


def renew_time(lease: Lease | None) -> datetime | None:
    if lease is None or not lease.spec.renew_time:
        return None
    return datetime.fromisoformat(lease.spec.renew_time)
