"""Gathers what limits the Reservations of a namespace: quotas, settings, and what the ledgers hold already.

The ledgers count, not the status of Reservations, so that a grant is counted from the moment it is made. The
caller holds a lock from the question until its grants are in the ledger; one process grants Reservations, so
any number of Reservations created at once is counted one after the other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from croupier.api import convert_pod, quotas
from croupier.api.core_v1 import Pod
from croupier.api.quotas import RESOURCE_QUOTAS, ResourceQuota
from croupier.capacity.manager import CapacityManager
from croupier.core.claims import budget, rebuild, reservation
from croupier.core.claims.budget import NamespaceBudget, ReservationLimits
from croupier.core.claims.reservation_inputs import ReservationInputs, ReservationRequest
from croupier.core.ledger import holder as holder_names
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import Grant
from croupier.core.model.card_request import CardRequest
from croupier.core.placement.placement import Strategy
from croupier.kube.cache.informer import Informer
from croupier.kube.client.api_client import Client, Selection


@dataclass(frozen=True, slots=True)
class ReservationBudgets:
    quotas: Informer[ResourceQuota]
    pod: Callable[[str], Pod | None]
    """Finds a pod by `namespace/name`."""
    api: Client
    manager: CapacityManager
    limits: Callable[[], ReservationLimits]

    async def limit(
        self, ledger: Ledger | None, scene: ReservationInputs, strategy: Strategy
    ) -> ReservationInputs:
        """The inputs with the pending Reservations that may get cards now, and those that may not."""
        if ledger is None:
            return scene
        namespaces = {asked.namespace for asked in reservation.pending(ledger, scene)}
        budgets = {namespace: await self._current(namespace) for namespace in sorted(namespaces)}
        return budget.decide(ledger, scene, strategy, budgets=budgets, is_charged=self._is_charged)

    def charged(self, ledger: Ledger | None, namespace: str, holder: str) -> Mapping[str, int]:
        """What the Reservation with this holder is charged; empty if its pod is."""
        grant: Grant = ledger.grant(holder) if ledger is not None else ()
        if ledger is None or not grant:
            return {}
        known = {card.id: card for card in ledger.cards}
        if rebuild.is_plausible(grant, self._requests_of(holder), known):
            return {}
        return NamespaceBudget(self._cached(namespace)).charge_of_grant(ledger, grant)

    def _is_charged(self, asked: ReservationRequest) -> bool:
        """Its pod requests cards itself, so Kubernetes charges the pod."""
        pod = self.pod(asked.pod)
        return pod is not None and not pod.is_finished and bool(convert_pod.view(pod).wants)

    async def _current(self, namespace: str) -> NamespaceBudget:
        """Quotas are read from the API server, because pods are charged there at once."""
        found = self._cached(namespace)
        if found:
            listed = await self.api.list(RESOURCE_QUOTAS, Selection(namespace=namespace))
            found = quotas.of_namespace(listed.items)
        current = NamespaceBudget(found, self.limits())
        ledgers = (self.manager.ledger(node) for node in tuple(self.manager.nodes()))
        known = [ledger for ledger in ledgers if ledger is not None]
        held = budget.holdings(known, namespace, current, self._requests_of)
        return replace(current, holdings=held)

    def _cached(self, namespace: str) -> tuple[budget.NamespaceQuota, ...]:
        return quotas.of_namespace(
            quota for quota in self.quotas.store if quota.metadata.namespace == namespace
        )

    def _requests_of(self, holder: str) -> CardRequest:
        pod = self.pod(holder_names.pod_key(holder))
        if pod is None or pod.is_finished or holder_names.uid(holder) not in ("", pod.metadata.uid):
            return ()
        return convert_pod.view(pod).wants
