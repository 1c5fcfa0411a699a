"""The common parts of every process: settings, API client, caches, metrics, health checks and shutdown."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import structlog
from prometheus_client import CollectorRegistry

from croupier.api import settings as spans
from croupier.api.settings import Configuration
from croupier.api.settings_order import Order
from croupier.book.manager import STRATEGY, TTL, Book
from croupier.controllers.watched import Watched
from croupier.core.placing.placement import Strategy
from croupier.kube import client, config, health, run, serving
from croupier.kube.client import EVERYTHING, Client, Selection
from croupier.kube.elector import Elector, Leadership
from croupier.kube.health import Health
from croupier.kube.metrics import Metrics
from croupier.kube.reflector import Reflector
from croupier.kube.resource import Resource
from croupier.kube.resumption import Rules
from croupier.kube.run import Part, Process
from croupier.kube.serving import Address, Listen
from croupier.kube.shift import Authority
from croupier.kube.store import Store
from croupier.wiring.settings import Following, Orders, Origin

T = TypeVar("T")

NAMESPACE: Final = "d8-gpu-operator"
FAREWELL: Final = 3.0
"""Seconds for pending writes at shutdown."""
BOUND_PODS: Final = Selection(fields="spec.nodeName!=")
"""Pending pods hold no cards yet, so most caches leave them out."""
PENDING_PODS: Final = Selection(fields="spec.nodeName=")
BY_HAND: Final = frozenset({"book", "ttl", "strategy", "log_level"})
"""Options that the command line can override for one process."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    """The command line options that are common to all processes."""

    book: Book = "InMemory"
    ttl: timedelta = TTL
    strategy: Strategy = STRATEGY
    namespace: str = NAMESPACE
    """The namespace of the Leases."""
    kubeconfig: Path | None = None
    context: str | None = None
    health: Address = field(default_factory=lambda: serving.parse(":8080"))
    configuration: Configuration = field(default_factory=Configuration)
    """All other settings of the installation."""
    origin: Origin | None = None
    """The source of the settings, which is watched while the process runs."""
    by_hand: frozenset[str] = BY_HAND
    """The options that the command line overrides."""

    def under(self, configuration: Configuration) -> "Settings":
        """These options with the installation's settings, except for overrides of the command line."""
        configured: dict[str, Any] = {
            "book": configuration.book,
            "ttl": timedelta(seconds=spans.seconds(configuration.reservation.ttl)),
            "strategy": configuration.scheduling.default_strategy,
        }
        applied = {name: value for name, value in configured.items() if name not in self.by_hand}
        return replace(self, configuration=configuration, **applied)


class Caches:
    """The informers of one process. A kind that is not installed has no objects."""

    def __init__(self, api: Client, metrics: Metrics) -> None:
        self._api = api
        self._metrics = metrics
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._followed: dict[str, tuple[Selection, Watched[Any]]] = {}

    def follow(
        self, resource: Resource[T], selection: Selection = EVERYTHING, *, name: str = ""
    ) -> Watched[T]:
        """The informer of a kind, shared by all callers. `name` distinguishes two informers of one kind."""
        called = name or resource.full_name
        if called in self._followed:
            before, watched = self._followed[called]
            if before != selection or watched.store.resource is not resource:
                raise ValueError(f"there are two caches named {called}: give the second one another name")
            return watched
        store = Store(resource)
        reflector = Reflector(self._api, store, selection=selection, rules=Rules(optional=True))
        self._metrics.caches.add(store, reflector, name or None)
        self._reflectors[called] = reflector
        self._followed[called] = selection, Watched(store, reflector)
        return Watched(store, reflector)

    def parts(self) -> list[Part]:
        return [
            run.endless(f"cache of {name}", reflector.run) for name, reflector in self._reflectors.items()
        ]

    async def synced(self) -> None:
        for reflector in self._reflectors.values():
            await reflector.synced()

    def behind(self) -> str | None:
        """For a readiness check: the kinds that have not synced yet."""
        missing = [name for name, reflector in self._reflectors.items() if not reflector.has_synced]
        return f"not synced yet: {', '.join(missing)}" if missing else None


@dataclass(frozen=True, slots=True)
class Surface:
    """The common parts of every process."""

    api: Client
    metrics: Metrics
    checks: Health
    settings: Settings
    """The options at start."""
    orders: Orders = field(default_factory=Orders)
    """The current settings."""
    following: tuple[Part, ...] = ()


@asynccontextmanager
async def surfaced(settings: Settings) -> AsyncIterator[Surface]:
    metrics, checks = Metrics(CollectorRegistry()), Health()
    checks.ready["process"] = lambda: "starting"  # the other checks are not registered yet
    application = health.app(checks, metrics.registry)
    connection = config.load(settings.kubeconfig, settings.context)
    async with (
        client.connect(connection, observe=metrics.request) as api,
        serving.serve(application, Listen(settings.health)) as listener,
    ):
        log.info("serving health and metrics", url=listener.url)
        if settings.origin is None:
            orders = Orders(Order(settings.configuration))
            yield Surface(api, metrics, checks, settings, orders)
            return
        levels = "log_level" not in settings.by_hand
        following = Following(api, settings.origin, settings.namespace, levels=levels)
        options = settings.under((await following.begin()).configuration)
        yield Surface(api, metrics, checks, options, following.orders, tuple(following.parts()))


async def until_stopped(surface: Surface, parts: list[Part]) -> int:
    measure = run.endless("loop measure", surface.metrics.measure_loop)
    process = Process([measure, *surface.following, *parts])
    surface.checks.ready["process"] = lambda: "stopping" if process.stopping else None
    return await process.run()


class Keeper(Protocol):
    """A controller, or any other task that runs under a lease."""

    def run(self, stop: asyncio.Event, authority: Authority) -> Coroutine[Any, Any, None]: ...


async def all_of(keepers: Iterable[Keeper], term: Leadership, stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        for keeper in keepers:
            group.create_task(keeper.run(stop, term))


def election(surface: Surface, lease: str) -> Elector:
    return Elector(surface.api, lease, surface.settings.namespace, gauge=surface.metrics)
