"""What every process has: settings, a connection, caches, figures, checks, and an orderly end."""

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
"""Seconds for what is still to be written when the work ends."""
BOUND_PODS: Final = Selection(fields="spec.nodeName!=")
"""A pod that waits holds nothing yet; who needs to know of one asks for it."""
PENDING_PODS: Final = Selection(fields="spec.nodeName=")
BY_HAND: Final = frozenset({"book", "ttl", "strategy", "log_level"})
"""What can be chosen for one process, whatever the settings say."""

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
    configuration: Configuration = field(default_factory=Configuration)
    """Everything else, as an installation sets it."""
    origin: Origin | None = None
    """Where that is read, and followed while the process runs."""
    by_hand: frozenset[str] = BY_HAND
    """What was chosen for this process."""

    def under(self, configuration: Configuration) -> "Settings":
        """As an installation's settings have it, except for what was chosen by hand."""
        told: dict[str, Any] = {
            "book": configuration.book,
            "ttl": timedelta(seconds=spans.seconds(configuration.reservation.ttl)),
            "strategy": configuration.scheduling.default_strategy,
        }
        free = {name: value for name, value in told.items() if name not in self.by_hand}
        return replace(self, configuration=configuration, **free)


class Caches:
    """What one process follows of the API server. A kind that is not installed has no objects."""

    def __init__(self, api: Client, metrics: Metrics) -> None:
        self._api = api
        self._metrics = metrics
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._followed: dict[str, tuple[Selection, Watched[Any]]] = {}

    def follow(
        self, resource: Resource[T], selection: Selection = EVERYTHING, *, name: str = ""
    ) -> Watched[T]:
        """`name` tells two caches of one kind apart. Who asks for the same again gets the same."""
        called = name or resource.full_name
        if called in self._followed:
            before, watched = self._followed[called]
            if before != selection or watched.store.resource is not resource:
                raise ValueError(f"two caches are called {called}: give the second one a name")
            return watched
        store = Store(resource)
        reflector = Reflector(self._api, store, selection=selection, rules=Rules(optional=True))
        self._metrics.caches.add(store, reflector, name or None)
        self._reflectors[called] = reflector
        self._followed[called] = selection, Watched(store, reflector)
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
    """As they were at the start."""
    orders: Orders = field(default_factory=Orders)
    """As they are now."""
    following: tuple[Part, ...] = ()


@asynccontextmanager
async def surfaced(settings: Settings) -> AsyncIterator[Surface]:
    metrics, checks = Metrics(CollectorRegistry()), Health()
    checks.ready["process"] = lambda: "starting"  # what else must be there first is not known yet
    application = health.app(checks, metrics.registry)
    connection = config.load(settings.kubeconfig, settings.context)
    async with (
        client.connect(connection, observe=metrics.request) as api,
        serving.serve(application, Listen(settings.health)) as taken,
    ):
        log.info("serving health and metrics", url=taken.url)
        if settings.origin is None:
            orders = Orders(Order(settings.configuration))
            yield Surface(api, metrics, checks, settings, orders)
            return
        levels = "log_level" not in settings.by_hand
        following = Following(api, settings.origin, settings.namespace, levels=levels)
        wanted = settings.under((await following.begin()).configuration)
        yield Surface(api, metrics, checks, wanted, following.orders, tuple(following.parts()))


async def until_stopped(surface: Surface, parts: list[Part]) -> int:
    measure = run.endless("loop measure", surface.metrics.measure_loop)
    process = Process([measure, *surface.following, *parts])
    surface.checks.ready["process"] = lambda: "stopping" if process.stopping else None
    return await process.run()


class Keeper(Protocol):
    """A controller, or what works like one."""

    def run(self, stop: asyncio.Event, authority: Authority) -> Coroutine[Any, Any, None]: ...


async def all_of(keepers: Iterable[Keeper], term: Leadership, stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        for keeper in keepers:
            group.create_task(keeper.run(stop, term))


def election(surface: Surface, lease: str) -> Elector:
    return Elector(surface.api, lease, surface.settings.namespace, gauge=surface.metrics)
