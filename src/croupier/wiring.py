"""BUILD. The one place where processes are put together: which kinds they follow, which book they keep.

Everything else gets what it needs handed in. `manager` runs the controllers of the ledger and of CPU limits
under elections; `extender` answers kube-scheduler; `webhook` answers the API server about new pods. With the
book in memory the extender is the one process that may change it, so the ledger's controllers run in there
(docs/decisions/0006-who-keeps-the-book.md).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import structlog
from prometheus_client import CollectorRegistry

from croupier.admission import certificates_shared, notices
from croupier.admission.authority import RULES as ROTATION
from croupier.admission.authority import Rules as Rotation
from croupier.admission.certificates_files import MountedCertificate
from croupier.admission.certificates_shared import SharedCertificate
from croupier.admission.configurations import Wish
from croupier.admission.metrics import AdmissionMetrics
from croupier.admission.mutate import Mutator
from croupier.admission.notices import Notices
from croupier.admission.registration import KINDS as REGISTRATIONS
from croupier.admission.registration import Registration
from croupier.admission.server import DRAIN, Webhook
from croupier.api import kinds, market_report
from croupier.api.gpu import GPUPool
from croupier.api.mbcas import PodAllocation
from croupier.api.mps import NodeReservation
from croupier.api.occupancy import LEAN_NODES, LEAN_PODS
from croupier.api.sighting import SIGHTINGS
from croupier.book import availability, switch
from croupier.book.crd import CRDCapacityManager
from croupier.book.manager import STRATEGY, TTL, Book, CapacityManager
from croupier.book.memory import InMemoryCapacityManager
from croupier.book.metrics import LedgerMetrics
from croupier.book.switch import BookKept
from croupier.book.writer import Rules as WriterRules
from croupier.controllers import audit as auditing
from croupier.controllers import capacity, holders, market_silence, podallocation, reservation, standing
from croupier.controllers.audit import Audit
from croupier.controllers.audit_metrics import AuditMetrics
from croupier.controllers.capacity import CapacityController
from croupier.controllers.holders import HolderController
from croupier.controllers.market_silence import MarketSilence
from croupier.controllers.podallocation import PodAllocationController
from croupier.controllers.podallocation_metrics import PodAllocationMetrics
from croupier.controllers.reservation import ReservationController
from croupier.controllers.reservation_metrics import ReservationMetrics
from croupier.controllers.sight import Sight, Sources
from croupier.controllers.standing import Standing
from croupier.controllers.watched import Watched
from croupier.core.availability import Availability
from croupier.core.fallback_policy import Policy
from croupier.core.placement import Strategy
from croupier.extender.metrics import ExtenderMetrics
from croupier.extender.server import Extender, Surroundings
from croupier.extender.service import Settings as Placing
from croupier.kube import client, config, health, run, serving
from croupier.kube.client import EVERYTHING, Client, Selection
from croupier.kube.elector import Elector, Leadership
from croupier.kube.errors import KubeError
from croupier.kube.events import Recorder
from croupier.kube.health import Health
from croupier.kube.metrics import Metrics
from croupier.kube.reflector import Reflector
from croupier.kube.resource import Raw, Resource
from croupier.kube.resumption import Rules
from croupier.kube.run import Part, Process
from croupier.kube.serving import GRACE, Address, Listen, Rotating
from croupier.kube.shift import Authority
from croupier.kube.store import Store
from croupier.node import market
from croupier.node.cgroup import Tree
from croupier.node.market import Agent
from croupier.node.market_metrics import MarketMetrics
from croupier.node.market_sight import Sources as MarketSources

T = TypeVar("T")

NAMESPACE: Final = "d8-gpu-operator"
REPORTER: Final = "croupier-ledger"
"""Who Events come from."""
MANAGER_LEASE: Final = "croupier-manager"
LIMITS_LEASE: Final = "croupier-cpu-limits"
ACCESS_REVIEWS: Final[Resource[Raw]] = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False, dict
)
MAY_RESIZE: Final[Raw] = {
    "spec": {"resourceAttributes": {"verb": "patch", "resource": "pods", "subresource": "resize"}}
}
ALLOWED_AGAIN: Final = 60.0
"""Seconds after which to ask again whether we may move CPU limits."""
FAREWELL: Final = 3.0
"""Seconds for what is still to be written when the work ends."""
GUARD: Final = 5.0
"""Seconds between looks for a book in memory."""
SHARED: Final = WriterRules(linger=40.0, gather=0.1)
"""An extender's writes: a bind can wait a moment for others, and its promotion for the next bind there."""
BOUND_PODS: Final = Selection(fields="spec.nodeName!=")
"""A pod that waits holds nothing yet; who needs to know of one asks for it."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a person can choose, the same for every process."""

    book: Book = "InMemory"
    ttl: timedelta = TTL
    strategy: Strategy = STRATEGY
    namespace: str = NAMESPACE
    """Where the Leases are."""
    kubeconfig: Path | None = None
    context: str | None = None
    health: Address = field(default_factory=lambda: serving.parse(":8080"))


class Caches:
    """What one process follows of the API server. A kind that is not installed has no objects."""

    def __init__(self, api: Client, metrics: Metrics) -> None:
        self._api = api
        self._metrics = metrics
        self._reflectors: dict[str, Reflector[Any]] = {}

    def follow(
        self, resource: Resource[T], selection: Selection = EVERYTHING, *, name: str = ""
    ) -> Watched[T]:
        """`name` tells two caches of one kind apart."""
        store = Store(resource)
        reflector = Reflector(self._api, store, selection=selection, rules=Rules(optional=True))
        self._metrics.caches.add(store, reflector, name or None)
        self._reflectors[name or resource.full_name] = reflector
        return Watched(store, reflector)

    def parts(self) -> list[Part]:
        return [run.endless(f"cache of {name}", one.run) for name, one in self._reflectors.items()]

    async def synced(self) -> None:
        for one in self._reflectors.values():
            await one.synced()

    def behind(self) -> str | None:
        """For a readiness check: which kinds have not been listed yet."""
        missing = [name for name, one in self._reflectors.items() if not one.has_synced]
        return f"not listed yet: {', '.join(missing)}" if missing else None


@dataclass(frozen=True, slots=True)
class Surface:
    """What every process has: a connection, figures, checks."""

    api: Client
    metrics: Metrics
    checks: Health
    settings: Settings


@asynccontextmanager
async def _surface(settings: Settings) -> AsyncIterator[Surface]:
    metrics, checks = Metrics(CollectorRegistry()), Health()
    application = health.app(checks, metrics.registry)
    connection = config.load(settings.kubeconfig, settings.context)
    async with (
        client.connect(connection, observe=metrics.request) as api,
        serving.serve(application, Listen(settings.health)) as taken,
    ):
        log.info("serving health and metrics", url=taken.url)
        yield Surface(api, metrics, checks, settings)


async def _until_stopped(surface: Surface, parts: list[Part]) -> int:
    process = Process([run.endless("loop measure", surface.metrics.measure_loop), *parts])
    surface.checks.ready["process"] = lambda: "stopping" if process.stopping else None
    return await process.run()


class Keeper(Protocol):
    """A controller, or what works like one."""

    def run(self, stop: asyncio.Event, authority: Authority) -> Coroutine[Any, Any, None]: ...


class LedgerKeepers:
    """The controllers that keep the ledger true, on whichever book."""

    def __init__(self, surface: Surface, caches: Caches) -> None:
        self._surface = surface
        self._sources = Sources(
            nodes=caches.follow(kinds.NODES),
            devices=caches.follow(kinds.GPU_DEVICES),
            pools=caches.follow(kinds.GPU_POOLS),
            pods=caches.follow(kinds.PODS, BOUND_PODS),
            reservations=caches.follow(kinds.RESERVATIONS),
        )
        self._sight = Sight(self._sources)
        self._counts = ReservationMetrics(surface.metrics.registry, self._sources.reservations.store)
        self._findings = AuditMetrics(surface.metrics.registry)
        self._events = Recorder(surface.api, REPORTER, gauge=surface.metrics)

    @property
    def pools(self) -> Watched[GPUPool]:
        return self._sources.pools

    def events(self) -> Part:
        return Part("events", self._events.run)

    async def open(self, book: CapacityManager) -> None:
        """Every node there is, so that a process can wait for the whole book before it serves."""
        await self._cards(book).prime()

    async def run(
        self,
        book: CapacityManager,
        term: Leadership,
        stop: asyncio.Event,
        *,
        records: Watched[NodeReservation] | None = None,
    ) -> None:
        """Work for one term of office, or until `stop`; with `records`, keep their status too."""
        api = self._surface.api.fenced(term.require)
        audit = self._audit(book, api)
        keepers: list[Keeper] = [
            self._cards(book),
            self._holders(book, api),
            self._reservations(book, api),
            audit,
        ]
        if records is not None:
            gauge = self._surface.metrics.controller(standing.NAME)
            settings = standing.Settings(gauge=gauge)
            keepers.append(Standing(records, api, book=book, notes=audit.notes, settings=settings))
        async with asyncio.TaskGroup() as group:
            for keeper in keepers:
                group.create_task(keeper.run(stop, term))

    def _cards(self, book: CapacityManager) -> CapacityController:
        gauge = self._surface.metrics.controller(capacity.NAME)
        return CapacityController(self._sight, book, capacity.Settings(gauge=gauge))

    def _holders(self, book: CapacityManager, api: Client) -> HolderController:
        settings = holders.Settings(gauge=self._surface.metrics.controller(holders.NAME))
        return HolderController(self._sight, api, book=book, recorder=self._events, settings=settings)

    def _reservations(self, book: CapacityManager, api: Client) -> ReservationController:
        settings = reservation.Settings(
            strategy=self._surface.settings.strategy,
            counts=self._counts,
            gauge=self._surface.metrics.controller(reservation.NAME),
        )
        followed = self._sources
        sources = reservation.Sources(followed.reservations, followed.pods, followed.nodes)
        return ReservationController(sources, api, book=book, recorder=self._events, settings=settings)

    def _audit(self, book: CapacityManager, api: Client) -> Audit:
        settings = auditing.Settings(gauge=self._findings)
        return Audit(self._sight, api, book=book, recorder=self._events, settings=settings)


async def manager(settings: Settings) -> int:
    """The controllers, under an election. With the book in memory they run where it is kept: not here."""
    async with _surface(settings) as surface:
        if settings.book == "InMemory":
            log.info(
                "capacityManager is InMemory: croupier extender keeps the ledger and decides Reservations"
            )
            return await _until_stopped(surface, [_limits(surface)])
        await switch.guard(surface.api, settings.namespace)
        return await _manage(surface)


async def _manage(surface: Surface) -> int:
    caches = Caches(surface.api, surface.metrics)
    keepers = LedgerKeepers(surface, caches)
    ledgers = caches.follow(kinds.NODE_RESERVATIONS)
    figures = LedgerMetrics(surface.metrics.registry)
    elector = _elector(surface, MANAGER_LEASE)

    async def lead(stop: asyncio.Event) -> None:
        async def work(term: Leadership) -> None:
            book = _shared_book(surface, ledgers, figures, surface.api.fenced(term.require))
            try:
                await keepers.run(book, term, stop, records=ledgers)
            finally:
                await _finish(book)

        await elector.run(work, stop)

    surface.checks.ready["caches"] = caches.behind
    parts = [*caches.parts(), keepers.events(), Part("controllers", lead), _guard(surface), _limits(surface)]
    return await _until_stopped(surface, parts)


def _limits(surface: Surface) -> Part:
    """Moves CPU limits, under an election of its own: whoever keeps a ledger need not be allowed to.

    Where there is no PodAllocation, pods are not followed for it.
    """

    async def work(stop: asyncio.Event) -> None:
        if not await _allowed(surface.api, stop):
            return
        first, then = Caches(surface.api, surface.metrics), Caches(surface.api, surface.metrics)
        recorder = Recorder(surface.api, podallocation.FIELD_MANAGER, gauge=surface.metrics)
        allocations, some = first.follow(kinds.POD_ALLOCATIONS), asyncio.Event()
        allocations.store.subscribe(lambda _: some.set())
        surface.checks.ready["caches of CPU limits"] = lambda: first.behind() or then.behind()
        async with asyncio.TaskGroup() as group:
            for part in first.parts():
                group.create_task(_awaited(part.run(stop)))
            await _either(stop, some)
            if stop.is_set():
                return
            movers = _movers(surface, then, allocations, recorder)
            for part in (*then.parts(), Part("events", recorder.run)):
                group.create_task(_awaited(part.run(stop)))
            elector = _elector(surface, LIMITS_LEASE)
            await elector.run(lambda term: _all_of(movers(term), term, stop), stop)

    return Part("CPU limits", work)


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()


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


async def _all_of(keepers: Iterable[Keeper], term: Leadership, stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        for keeper in keepers:
            group.create_task(keeper.run(stop, term))


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


async def extender(settings: Settings, listen: Listen) -> int:
    """What kube-scheduler asks; with the book in memory also the controllers, under a Lease."""
    async with _surface(settings) as surface:
        if settings.book == "InMemory":
            return await _place_from_memory(surface, listen)
        await switch.guard(surface.api, settings.namespace)
        return await _place_from_ledgers(surface, listen)


async def _place_from_ledgers(surface: Surface, listen: Listen) -> int:
    caches = Caches(surface.api, surface.metrics)
    pools, ledgers = caches.follow(kinds.GPU_POOLS), caches.follow(kinds.NODE_RESERVATIONS)
    figures = LedgerMetrics(surface.metrics.registry)
    book = _shared_book(surface, ledgers, figures, surface.api, rules=SHARED)
    around = Surroundings(
        ready=lambda: caches.behind() is None,
        of_pool=_strategy_of(pools),
        gauge=ExtenderMetrics(surface.metrics.registry),
    )
    serving = Extender(book, surface.api, settings=_placing(surface.settings), listen=listen, around=around)

    async def serve(stop: asyncio.Event) -> None:
        try:
            await serving.run(stop)
        finally:
            await _finish(book)

    surface.checks.ready["caches"] = caches.behind
    return await _until_stopped(surface, [*caches.parts(), Part("extender", serve), _guard(surface)])


async def _place_from_memory(surface: Surface, listen: Listen) -> int:
    caches = Caches(surface.api, surface.metrics)
    keepers = LedgerKeepers(surface, caches)
    elector = _elector(surface, switch.LEASE)
    settings, figures = surface.settings, ExtenderMetrics(surface.metrics.registry)
    around = Surroundings(of_pool=_strategy_of(keepers.pools), gauge=figures)
    complete = asyncio.Event()

    async def lead(stop: asyncio.Event) -> None:
        async def work(term: Leadership) -> None:
            book = InMemoryCapacityManager(strategy=settings.strategy, ttl=settings.ttl)
            api = surface.api.fenced(term.require)
            await book.carry_over(api)
            await keepers.open(book)
            serving = Extender(book, api, settings=_placing(settings), listen=listen, around=around)
            complete.set()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(keepers.run(book, term, stop))
                    group.create_task(serving.run(stop))
            finally:
                complete.clear()

        await elector.run(work, stop)

    waiting = f"waiting for the Lease {settings.namespace}/{switch.LEASE}, or reading the book"
    surface.checks.ready["book"] = lambda: None if complete.is_set() else waiting
    return await _until_stopped(surface, [*caches.parts(), keepers.events(), Part("extender", lead)])


async def _finish(book: CRDCapacityManager) -> None:
    """What is queued is written, but whoever lost the lead has no time for that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(FAREWELL):
            await book.finish()


def _guard(surface: Surface) -> Part:
    """Ends the process when somebody begins to keep the book in memory: never both at once."""

    async def watch() -> None:
        while True:
            await asyncio.sleep(GUARD)
            try:
                await switch.guard(surface.api, surface.settings.namespace)
            except BookKept:
                raise
            except KubeError as error:
                log.warning("cannot see whether somebody keeps the book in memory", error=str(error))

    return run.endless("guard of the book", watch)


def _shared_book(
    surface: Surface,
    ledgers: Watched[NodeReservation],
    figures: LedgerMetrics,
    api: Client,
    *,
    rules: WriterRules | None = None,
) -> CRDCapacityManager:
    settings = surface.settings
    return CRDCapacityManager(
        api, ledgers.store, strategy=settings.strategy, ttl=settings.ttl, gauge=figures, rules=rules
    )


def _strategy_of(pools: Watched[GPUPool]) -> Callable[[str], Strategy | None]:
    def of_pool(name: str) -> Strategy | None:
        found = pools.store.named(name)
        return found.spec.scheduling.strategy if found is not None else None

    return of_pool


def _placing(settings: Settings) -> Placing:
    return Placing(strategy=settings.strategy, ttl=settings.ttl)


def _elector(surface: Surface, lease: str) -> Elector:
    return Elector(surface.api, lease, surface.settings.namespace, gauge=surface.metrics)


@dataclass(frozen=True, slots=True)
class Admission:
    """What a person can choose of the webhook."""

    listen: Address
    wish: Wish
    policy: Policy = field(default_factory=Policy)
    installs: bool = True
    """Whether the process registers itself with the API server."""
    mounted: Path | None = None
    """A folder with a certificate that somebody else keeps; without it we make our own."""
    rotation: Rotation = ROTATION
    drain: float = DRAIN


async def webhook(settings: Settings, admission: Admission) -> int:
    """Answers the API server about new pods, from memory: not before everything is listed."""
    async with _surface(settings) as surface:
        caches, served = Caches(surface.api, surface.metrics), Rotating()
        figures = AdmissionMetrics(surface.metrics.registry)
        recorder = Recorder(surface.api, notices.REPORTER, gauge=surface.metrics, naming=notices.naming)
        told = Notices(recorder)
        caches.follow(SIGHTINGS, name="pods as they come").store.subscribe(told.seen)
        mutator = Mutator(_offer(caches, admission.policy), lambda: admission.policy)
        certificate = _certificate(surface, caches, admission, (served, figures))
        hook = Webhook(
            mutator, Listen(admission.listen, served), gauge=figures, notices=told, drain=admission.drain
        )

        async def serve(stop: asyncio.Event) -> None:
            await _first(stop, _both(caches.synced(), certificate.loaded.wait()))
            if not stop.is_set():
                await hook.run(stop, listening=certificate.answer)

        ready = surface.checks.ready
        ready |= {"caches": caches.behind, "certificate": certificate.missing, "webhook": hook.silent}
        parts = [*caches.parts(), Part("events", recorder.run), run.endless("certificate", certificate.run)]
        return await _until_stopped(
            surface, [*parts, Part("webhook", serve, grace=admission.drain + GRACE + FAREWELL)]
        )


def _offer(caches: Caches, policy: Policy) -> Availability:
    """Which pods there are matters only to those who prefer what is free."""
    nodes = caches.follow(LEAN_NODES).store
    bound = caches.follow(LEAN_PODS, BOUND_PODS).store if policy.prefer_available else Store(LEAN_PODS)
    return availability.follow(nodes, bound)


def _certificate(
    surface: Surface, caches: Caches, admission: Admission, served: tuple[Rotating, AdmissionMetrics]
) -> SharedCertificate | MountedCertificate:
    tls, figures = served
    api = surface.api.acting_as(notices.REPORTER)
    registration = Registration(api, admission.wish, installs=admission.installs)
    if admission.mounted is not None:
        installer = registration if admission.installs else None
        return MountedCertificate(admission.mounted, installer, tls, gauge=figures)
    namespace = surface.settings.namespace
    chosen = certificates_shared.Settings(
        namespace, hosts=admission.wish.target.hosts, rules=admission.rotation
    )
    shared = SharedCertificate(api, registration, tls, chosen, gauge=figures)
    secret = Selection(namespace=namespace, fields=f"metadata.name={chosen.name}")
    caches.follow(kinds.SECRETS, secret).store.subscribe(shared.wake)
    for kind in REGISTRATIONS:
        ours = Selection(fields=f"metadata.name={admission.wish.name}")
        caches.follow(kind, ours).store.subscribe(shared.wake)
    return shared


async def market_agent(settings: Settings, chosen: market.Settings, tree: Tree) -> int:
    """The CPU market of one node; nothing is decided before everything is listed."""
    async with _surface(settings) as surface:
        caches = Caches(surface.api, surface.metrics)
        sources = MarketSources(
            caches.follow(kinds.NODES, Selection(fields=f"metadata.name={chosen.node}")).store,
            caches.follow(kinds.PODS, Selection(fields=f"spec.nodeName={chosen.node}")).store,
            caches.follow(kinds.POD_ALLOCATIONS).store,
        )
        chosen = replace(chosen, gauge=MarketMetrics(surface.metrics.registry))
        api = surface.api.acting_as(market.REPORTER)
        agent = Agent(sources, tree, api, chosen)

        async def trade(stop: asyncio.Event) -> None:
            await _first(stop, caches.synced())
            await agent.run(stop)

        surface.checks.ready |= {"caches": caches.behind, "control groups": tree.trouble}
        return await _until_stopped(surface, [*caches.parts(), Part("market", trade)])


async def _both(*waits: Coroutine[Any, Any, Any]) -> None:
    await asyncio.gather(*waits)


async def _first(stop: asyncio.Event, done: Coroutine[Any, Any, None]) -> None:
    """Until it is done, or we are stopped."""
    waits = {asyncio.create_task(done), asyncio.create_task(stop.wait())}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for one in waits:
        one.cancel()
    await asyncio.wait(waits)
