"""Who moves CPU limits in a manager, and when."""

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
"""Seconds after which to ask again whether we may move CPU limits."""

log = structlog.get_logger(__name__)


def limits(surface: Surface) -> Part:
    """Moves CPU limits, under an election of its own: whoever keeps a ledger need not be allowed to.

    Where there is no PodAllocation, pods are not followed for it.
    """

    async def work(stop: asyncio.Event) -> None:
        if not await _allowed(surface.api, stop):
            return
        wishes, then = Caches(surface.api, surface.metrics), Caches(surface.api, surface.metrics)
        recorder = Recorder(surface.api, podallocation.FIELD_MANAGER, gauge=surface.metrics)
        allocations, some = wishes.follow(kinds.POD_ALLOCATIONS), asyncio.Event()
        allocations.store.subscribe(lambda _: some.set())
        surface.checks.ready["caches of CPU limits"] = lambda: wishes.behind() or then.behind()
        async with asyncio.TaskGroup() as group:
            for part in wishes.parts():
                group.create_task(_awaited(part.run(stop)))
            await first(stop, some.wait())
            if stop.is_set():
                return
            movers = _movers(surface, then, allocations, recorder)
            for part in (*then.parts(), Part("events", recorder.run)):
                group.create_task(_awaited(part.run(stop)))
            elector = election(surface, LIMITS_LEASE)

            async def move(term: Leadership) -> None:
                await surface.orders.obeyed(lambda end, _: all_of(movers(term), term, end), stop)

            await elector.run(move, stop)

    return Part("CPU limits", work)


def _movers(
    surface: Surface, caches: Caches, allocations: Watched[PodAllocation], recorder: Recorder
) -> Callable[[Leadership], list[Keeper]]:
    """What works on CPU limits in a term of office."""
    metrics, namespace = surface.metrics, surface.settings.namespace
    agents = f"{market_report.AGENT}={market_report.TRADING}"
    leases = caches.follow(kinds.LEASES, Selection(namespace, labels=agents))
    sources = podallocation.Sources(allocations, caches.follow(kinds.PODS, name="pods with CPU limits"))
    figures = PodAllocationMetrics(metrics.registry, allocations.store)

    def movers(term: Leadership) -> list[Keeper]:
        api = surface.api.fenced(term.require)
        moving = podallocation.Settings(counts=figures, gauge=metrics.controller(podallocation.NAME))
        quiet = market_silence.Settings(gauge=metrics.controller(market_silence.NAME))
        return [
            PodAllocationController(sources, api, recorder=recorder, settings=moving),
            MarketSilence(allocations, leases, api, quiet),
        ]

    return movers


async def _allowed(api: Client, stop: asyncio.Event) -> bool:
    """Whether we may move CPU limits; asked again until we may. False: we were stopped before."""
    told = False
    while not stop.is_set():
        try:
            answer = await api.create(ACCESS_REVIEWS, MAY_RESIZE)
            if answer["status"]["allowed"]:
                return True
            if not told:
                log.info("this account may not patch pods/resize: CPU limits are left to others")
            told = True
        except KubeError as error:
            log.warning("cannot see whether we may move CPU limits", error=str(error))
        with suppress(TimeoutError):
            async with asyncio.timeout(ALLOWED_AGAIN):
                await stop.wait()
    return False


async def _awaited(work: Awaitable[None]) -> None:
    await work
