"""The controllers that move CPU limits: `croupier manager --controllers limits`."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from croupier.api import kinds, market_report
from croupier.api.mbcas import PodAllocation
from croupier.controllers.limits import market_silence, podallocation
from croupier.controllers.limits.market_silence import MarketSilence
from croupier.controllers.limits.metrics import PodAllocationMetrics
from croupier.controllers.limits.podallocation import PodAllocationController
from croupier.controllers.watched import Watched
from croupier.kube.client import Client, Selection
from croupier.kube.elector import Leadership
from croupier.kube.errors import KubeError
from croupier.kube.events import Recorder
from croupier.kube.resource import Raw, Resource
from croupier.kube.run import Part
from croupier.kube.together import first
from croupier.wiring.surface import Caches, Keeper, Surface, all_of, election

LIMITS_LEASE: Final = "croupier-cpu-limits"
ACCESS_REVIEWS: Final[Resource[Raw]] = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False, dict
)
MAY_RESIZE: Final[Raw] = {
    "spec": {"resourceAttributes": {"verb": "patch", "resource": "pods", "subresource": "resize"}}
}
ALLOWED_AGAIN: Final = 60.0
"""Seconds between checks whether the service account may patch pods/resize."""

log = structlog.get_logger(__name__)


def limits(surface: Surface) -> Part:
    """Moves CPU limits under its own lease, so that only this group needs the permission.

    Pods are cached only once there is a PodAllocation.
    """

    async def work(stop: asyncio.Event) -> None:
        if not await _allowed(surface.api, stop):
            return
        allocation_caches = Caches(surface.api, surface.metrics)
        other_caches = Caches(surface.api, surface.metrics)
        recorder = Recorder(surface.api, podallocation.FIELD_MANAGER, gauge=surface.metrics)
        allocations, first_allocation = allocation_caches.follow(kinds.POD_ALLOCATIONS), asyncio.Event()
        allocations.store.subscribe(lambda _: first_allocation.set())
        surface.checks.ready["caches of CPU limits"] = lambda: (
            allocation_caches.behind() or other_caches.behind()
        )
        async with asyncio.TaskGroup() as group:
            for part in allocation_caches.parts():
                group.create_task(_awaited(part.run(stop)))
            await first(stop, first_allocation.wait())
            if stop.is_set():
                return
            controllers = _movers(surface, other_caches, allocations, recorder)
            for part in (*other_caches.parts(), Part("events", recorder.run)):
                group.create_task(_awaited(part.run(stop)))
            elector = election(surface, LIMITS_LEASE)

            async def move(leadership: Leadership) -> None:
                await surface.orders.obeyed(
                    lambda end, _: all_of(controllers(leadership), leadership, end), stop
                )

            await elector.run(move, stop)

    return Part("CPU limits", work)


def _movers(
    surface: Surface, caches: Caches, allocations: Watched[PodAllocation], recorder: Recorder
) -> Callable[[Leadership], list[Keeper]]:
    """A factory of the controllers of one leadership."""
    metrics, namespace = surface.metrics, surface.settings.namespace
    agents = f"{market_report.AGENT}={market_report.TRADING}"
    leases = caches.follow(kinds.LEASES, Selection(namespace, labels=agents))
    sources = podallocation.Sources(allocations, caches.follow(kinds.PODS, name="pods with CPU limits"))
    counters = PodAllocationMetrics(metrics.registry, allocations.store)

    def controllers(leadership: Leadership) -> list[Keeper]:
        api = surface.api.fenced(leadership.require)
        moving = podallocation.Settings(counts=counters, gauge=metrics.controller(podallocation.NAME))
        restoring = market_silence.Settings(gauge=metrics.controller(market_silence.NAME))
        return [
            PodAllocationController(sources, api, recorder=recorder, settings=moving),
            MarketSilence(allocations, leases, api, restoring),
        ]

    return controllers


async def _allowed(api: Client, stop: asyncio.Event) -> bool:
    """Wait until the service account may patch pods/resize; False if stopped before that."""
    logged = False
    while not stop.is_set():
        try:
            review = await api.create(ACCESS_REVIEWS, MAY_RESIZE)
            if review["status"]["allowed"]:
                return True
            if not logged:
                log.info("the service account may not patch pods/resize: not moving CPU limits")
            logged = True
        except KubeError as error:
            log.warning("cannot check the permission to patch pods/resize", error=str(error))
        with suppress(TimeoutError):
            async with asyncio.timeout(ALLOWED_AGAIN):
                await stop.wait()
    return False


async def _awaited(work: Awaitable[None]) -> None:
    await work
