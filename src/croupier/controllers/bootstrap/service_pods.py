"""The service pods that label or monitor nodes.

Service pods of other operators count only in trusted namespaces, because any user can label a pod.
"""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import structlog

from croupier.api.core_v1 import Pod
from croupier.api.gpu import GPUNodeInventory
from croupier.api.kinds import PODS
from croupier.controllers.bootstrap import service_manifests as bootstrap_pods
from croupier.controllers.bootstrap.service_manifests import ServiceImages
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.core.nodes import bootstrap
from croupier.core.nodes.bootstrap import IMAGE, SERVICE, TRUSTED_NAMESPACES, ServiceKind, ServicePod
from croupier.kube.cache.store import Store, StoreIndex
from croupier.kube.client.api_client import Client, DeleteOptions
from croupier.kube.client.errors import AlreadyExists, NotFound

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ServicePodOptions:
    """`namespace` is the namespace of the service pods that Croupier starts."""

    images: ServiceImages = field(default_factory=ServiceImages)
    namespace: str = DEFAULT_NAMESPACE
    trusted_namespaces: tuple[str, ...] = TRUSTED_NAMESPACES


class ServicePods:
    def __init__(self, pods: Store[Pod], api: Client, places: ServicePodOptions) -> None:
        self._api = api
        self._places = places
        self._pods = pods.index(self.node_of)

    @property
    def indexes(self) -> tuple[StoreIndex[Any, Any], ...]:
        """The indexes that the caller must keep up to date."""
        return (self._pods,)

    def node_of(self, pod: Pod) -> Iterable[str]:
        """The node of a service pod, also of a finished one of ours that must be replaced; else empty."""
        served = self._is_ours(pod) or self._read(pod) is not None
        return (pod.spec.node_name,) if served and pod.spec.node_name else ()

    def on(self, node: str) -> tuple[ServicePod, ...]:
        return tuple(found for pod in self._pods.get(node) if (found := self._read(pod)) is not None)

    async def sync(self, inventory: GPUNodeInventory, start: frozenset[ServiceKind]) -> list[Pod]:
        """Start missing service pods, stop outdated ones, and return the started pods."""
        node = inventory.metadata.name
        ours = [pod for pod in self._pods.get(node) if self._is_ours(pod)]
        fit = {kind for pod in ours for kind in start if self._is_fit(pod, kind)}
        for pod in ours:
            if not any(self._is_fit(pod, kind) for kind in start):
                await self._stop(pod)
        made = [await self._start(kind, inventory) for kind in sorted(start - fit)]
        return [pod for pod in made if pod is not None]

    async def _start(self, kind: ServiceKind, inventory: GPUNodeInventory) -> Pod | None:
        body = bootstrap_pods.body(kind, inventory, self._places.images)
        try:
            return await self._api.create(PODS, body, namespace=self._places.namespace)
        except AlreadyExists:
            return None  # the old pod is terminating; its deletion triggers a reconcile

    async def _stop(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            return
        meta = pod.metadata
        with contextlib.suppress(NotFound):
            await self._api.delete(PODS, meta.name, namespace=meta.namespace, how=DeleteOptions(uid=meta.uid))
            log.info(
                f"service pod {meta.key} was deleted because node {pod.spec.node_name} does not need it",
                node=pod.spec.node_name,
                pod=meta.key,
            )

    def _is_ours(self, pod: Pod) -> bool:
        return pod.metadata.namespace == self._places.namespace and SERVICE in pod.metadata.labels

    def _is_fit(self, pod: Pod, kind: ServiceKind) -> bool:
        """The pod is running, provides this service, and has the configured image."""
        meta, image = pod.metadata, self._places.images.images.get(kind)
        stays = not pod.is_finished and meta.deletion_timestamp is None
        return stays and meta.labels[SERVICE] == kind and meta.annotations.get(IMAGE) == image

    def _read(self, pod: Pod) -> ServicePod | None:
        meta, places = pod.metadata, self._places
        if pod.is_finished or meta.deletion_timestamp is not None:
            return None
        if meta.namespace not in (*places.trusted_namespaces, places.namespace):
            return None
        ours = self._is_ours(pod)
        kind = bootstrap.kind_of(meta.labels, meta.labels.get(SERVICE, "") if ours else "")
        return ServicePod(kind, meta.key, _is_ready(pod), _waiting_reason(pod), ours=ours) if kind else None


def _is_ready(pod: Pod) -> bool:
    return any(cond.type == "Ready" and cond.status == "True" for cond in pod.status.conditions)


def _waiting_reason(pod: Pod) -> str:
    waiting = (status.state.waiting for status in pod.status.container_statuses)
    reasons = (state.reason for state in waiting if state is not None and state.reason)
    return next(reasons, pod.status.reason)
