"""The controllers that move CPU limits: `croupier manager --controllers limits`."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace
from typing import Final

import structlog

from croupier.api import kinds, market_report
from croupier.api.mbcas import PodAllocation
from croupier.api.settings import Configuration
from croupier.controllers.limits import podallocation, restore_limits
from croupier.controllers.limits.metrics import PodAllocationMetrics
from croupier.controllers.limits.podallocation import PodAllocationController
from croupier.controllers.limits.restore_limits import RestoreLimitsController
from croupier.kube.cache.informer import Informer
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.concurrency import wait_or_stop
from croupier.kube.client.errors import KubeError
from croupier.kube.client.resource import Raw
from croupier.kube.controller.events import EventRecorder
from croupier.kube.serving.component_runner import Component
from croupier.wiring import elections
from croupier.wiring.controller_group import ControllerGroup
from croupier.wiring.process_context import InformerFactory, Runnable

MAY_RESIZE: Final[Raw] = {
    "spec": {"resourceAttributes": {"verb": "patch", "resource": "pods", "subresource": "resize"}}
}
ACCESS_RECHECK: Final = 60.0
"""Seconds between checks whether the service account may patch pods/resize."""

log = structlog.get_logger(__name__)


def components(group: ControllerGroup) -> list[Component]:
    """Under its own lease, so that only this group needs the permission.

    It has caches of its own: pods are cached only once there is a PodAllocation.
    """
    context = group.context

    async def work(stop: asyncio.Event) -> None:
        if not await _wait_for_access(context.api, stop):
            return
        allocation_caches = InformerFactory(context.api, context.metrics)
        other_caches = InformerFactory(context.api, context.metrics)
        allocations, first_allocation = allocation_caches.follow(kinds.POD_ALLOCATIONS), asyncio.Event()
        allocations.store.subscribe(lambda _: first_allocation.set())
        context.checks.ready["caches of CPU limits"] = lambda: (
            allocation_caches.not_synced() or other_caches.not_synced()
        )
        async with asyncio.TaskGroup() as tasks:
            for part in allocation_caches.components():
                tasks.create_task(_awaited(part.run(stop)))
            await wait_or_stop(stop, first_allocation.wait())
            if stop.is_set():
                return
            controllers = _elected(replace(group, caches=other_caches), allocations)
            for part in (*other_caches.components(), *controllers):
                tasks.create_task(_awaited(part.run(stop)))

    return [Component("CPU limits", work)]


def _elected(group: ControllerGroup, allocations: Informer[PodAllocation]) -> list[Component]:
    context, follow = group.context, group.caches.follow
    agents = f"{market_report.AGENT_LABEL}={market_report.ACTIVE}"
    leases = follow(kinds.LEASES, Selection(context.settings.namespace, labels=agents))
    pods = follow(kinds.PODS, name="pods with CPU limits")
    recorder = EventRecorder(context.api, podallocation.FIELD_MANAGER, metrics=context.metrics.events)
    counters = PodAllocationMetrics(context.leader_registry(elections.LIMITS), allocations.store)

    def controllers(api: Client, configuration: Configuration) -> list[Runnable]:
        sources = podallocation.PodAllocationInformers(allocations, pods)
        moving = podallocation.PodAllocationOptions(
            clock=api.clock,
            max_per_namespace=configuration.pod_allocations.max_per_namespace,
            resize_metrics=counters,
            metrics=context.metrics.controller(podallocation.NAME),
        )
        restoring = restore_limits.RestoreLimitsOptions(
            clock=api.clock, metrics=context.metrics.controller(restore_limits.NAME)
        )
        return [
            PodAllocationController(sources, api, recorder=recorder, settings=moving),
            RestoreLimitsController(allocations, leases, api, restoring),
        ]

    elected = group.elected(
        "CPU limits",
        elections.LIMITS,
        controllers,
        depends_on=lambda configuration: configuration.pod_allocations,
    )
    return [Component("events of CPU limits", recorder.run), elected]


async def _wait_for_access(api: Client, stop: asyncio.Event) -> bool:
    """Wait until the service account may patch pods/resize; False if stopped before that."""
    logged = False
    while not stop.is_set():
        try:
            review = await api.create(kinds.SELF_SUBJECT_ACCESS_REVIEWS, MAY_RESIZE)
            if review["status"]["allowed"]:
                return True
            if not logged:
                log.info("the service account may not patch pods/resize, so CPU limits stay as they are")
            logged = True
        except KubeError as error:
            log.warning(f"the permission to patch pods/resize cannot be checked: {error}", error=str(error))
        with suppress(TimeoutError):
            async with asyncio.timeout(ACCESS_RECHECK):
                await stop.wait()
    return False


async def _awaited(work: Awaitable[None]) -> None:
    await work
