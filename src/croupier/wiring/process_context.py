"""The common parts of every process: settings, API client, caches, metrics, health checks and shutdown."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from prometheus_client import CollectorRegistry

from croupier.api import settings as spans
from croupier.api.mps.reservation import NO_MIRRORS
from croupier.api.settings import Configuration
from croupier.api.settings_state import ActiveSettings
from croupier.capacity.manager import STRATEGY, TTL, CapacityManagerKind
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.core.placement.placement import Strategy
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.cache.watch_state import ReflectorOptions
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import EVERYTHING, Client, Selection
from croupier.kube.client.concurrency import wait_or_stop
from croupier.kube.client.resource import Resource
from croupier.kube.controller import leader_election
from croupier.kube.controller.controller_run import LeaderCheck
from croupier.kube.controller.leader_election import Elector, Leadership
from croupier.kube.controller.lease import LeaseTimings
from croupier.kube.serving import component_runner, health, http_server
from croupier.kube.serving.component_runner import Component, ComponentRunner
from croupier.kube.serving.health import HealthChecks
from croupier.kube.serving.http_server import Address, ListenOptions
from croupier.kube.serving.metrics import ProcessMetrics
from croupier.wiring import startup
from croupier.wiring.live_settings import LiveSettings, Origin, SettingsWatcher

T = TypeVar("T")

SHUTDOWN_TIMEOUT: Final = 3.0
"""Seconds for pending writes at shutdown."""
BOUND_PODS: Final = Selection(fields="spec.nodeName!=")
"""Pending pods hold no cards yet, so most caches leave them out."""
PENDING_PODS: Final = Selection(fields="spec.nodeName=")
DECIDED_RESERVATIONS: Final = Selection(labels=NO_MIRRORS)
"""Mirrors hold nothing, so caches that decide or show what is held leave them out."""
OVERRIDABLE: Final = frozenset({"book", "ttl", "strategy", "log_level"})
"""Options that the command line can override for one process."""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """The command line options that are common to all processes."""

    book: CapacityManagerKind = "InMemory"
    ttl: timedelta = TTL
    strategy: Strategy = STRATEGY
    namespace: str = DEFAULT_NAMESPACE
    """The namespace of the Leases."""
    kubeconfig: Path | None = None
    context: str | None = None
    health: Address = field(default_factory=lambda: http_server.parse(":8080"))
    configuration: Configuration = field(default_factory=Configuration)
    """All other settings of the installation."""
    origin: Origin | None = None
    """The source of the settings, which is watched while the process runs."""
    overrides: frozenset[str] = OVERRIDABLE
    """The options that the command line overrides."""

    def with_settings(self, configuration: Configuration) -> "ProcessOptions":
        """These options with the installation's settings, except for overrides of the command line."""
        configured: dict[str, Any] = {
            "book": configuration.book,
            "ttl": timedelta(seconds=spans.seconds(configuration.reservation.ttl)),
            "strategy": configuration.scheduling.default_strategy,
        }
        applied = {name: value for name, value in configured.items() if name not in self.overrides}
        return replace(self, configuration=configuration, **applied)


class InformerFactory:
    """The informers of one process. A kind that is not installed has no objects."""

    def __init__(self, api: Client, metrics: ProcessMetrics, rules: ReflectorOptions | None = None) -> None:
        self._api = api
        self._metrics = metrics
        self._rules = rules or ReflectorOptions(optional=True)
        self._reflectors: dict[str, Reflector[Any]] = {}
        self._followed: dict[str, tuple[Selection, Informer[Any]]] = {}

    def follow(
        self, resource: Resource[T], selection: Selection = EVERYTHING, *, name: str = ""
    ) -> Informer[T]:
        """The informer of a kind, shared by all callers. `name` distinguishes two informers of one kind."""
        called = name or resource.full_name
        if called in self._followed:
            before, watched = self._followed[called]
            if before != selection or watched.store.resource is not resource:
                raise ValueError(f"there are two caches named {called}: give the second one another name")
            return watched
        store = Store(resource)
        reflector = Reflector(self._api, store, selection=selection, rules=self._rules)
        self._metrics.caches.add(store, reflector, name or None)
        self._reflectors[called] = reflector
        self._followed[called] = selection, Informer(store, reflector)
        return Informer(store, reflector)

    def components(self) -> list[Component]:
        return [
            component_runner.until_cancelled(f"{startup.CACHE}{name}", reflector.run)
            for name, reflector in self._reflectors.items()
        ]

    def reflectors(self) -> Mapping[str, Reflector[Any]]:
        """By name of the informer."""
        return self._reflectors

    async def synced(self) -> None:
        for reflector in self._reflectors.values():
            await reflector.synced()

    def not_synced(self) -> str | None:
        """For a readiness check: the kinds that have not synced yet."""
        missing = [name for name, reflector in self._reflectors.items() if not reflector.has_synced]
        return f"not synced yet: {', '.join(missing)}" if missing else None


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """The common parts of every process."""

    api: Client
    metrics: ProcessMetrics
    checks: HealthChecks
    settings: ProcessOptions
    """The options at start."""
    live_settings: LiveSettings = field(default_factory=LiveSettings)
    """The current settings."""
    watcher_components: tuple[Component, ...] = ()
    source: str = "command line"
    """Where the settings come from."""
    url: str = ""
    """The address that serves health checks and metrics."""
    server: str = ""
    """The address of the API server."""
    identity: str = field(default_factory=leader_election.unique_name)
    """The name of this process in the Leases for which it is a candidate."""

    def log_fields(self, process: str) -> dict[str, str]:
        """What the first log line says of this process."""
        return {
            "process": process,
            "capacity_manager": self.settings.book,
            "settings": self.source,
            "identity": self.identity,
            "url": self.url,
            "server": self.server,
        }

    def lease_client(self) -> Client:
        """For one Lease that this process renews; the renewals wait for no other request."""
        return self.api.prioritized(LeaseTimings().attempt_timeout)

    def leader_registry(self, lease: str) -> CollectorRegistry:
        """For metrics about the cluster, which only the process that holds `lease` exports."""
        return self.metrics.of_leader(f"{self.settings.namespace}/{lease}")


@asynccontextmanager
async def open_context(settings: ProcessOptions) -> AsyncIterator[ProcessContext]:
    metrics, checks = ProcessMetrics(CollectorRegistry()), HealthChecks()
    checks.ready["process"] = lambda: "starting"  # the other checks are not registered yet
    application = health.app(checks, metrics.registry)
    connection = config.load(settings.kubeconfig, settings.context)
    async with (
        api_client.connect(connection, observe=metrics.request) as api,
        http_server.serve(application, ListenOptions(settings.health)) as listener,
    ):
        if settings.origin is None:
            orders = LiveSettings(ActiveSettings(settings.configuration))
            yield ProcessContext(
                api, metrics, checks, settings, orders, url=listener.url, server=connection.server
            )
            return
        levels = "log_level" not in settings.overrides
        following = SettingsWatcher(api, settings.origin, settings.namespace, levels=levels)
        options = settings.with_settings((await following.load_initial()).configuration)
        parts = tuple(following.components())
        yield ProcessContext(
            api,
            metrics,
            checks,
            options,
            following.live_settings,
            parts,
            source=following.source,
            url=listener.url,
            server=connection.server,
        )


async def run_until_stopped(
    context: ProcessContext,
    components: list[Component],
    *,
    name: str,
    details: Mapping[str, str] | None = None,
) -> int:
    """Run the process `name`; `details` are further settings for its first log line."""
    measure = component_runner.until_cancelled("loop measure", context.metrics.measure_loop)

    async def announce(stop: asyncio.Event) -> None:
        await wait_or_stop(stop, startup.log_ready(name, context.checks))
        await stop.wait()

    announcer = Component("start log", announce)
    process = ComponentRunner([measure, announcer, *context.watcher_components, *components])
    startup.log_start(components, context.live_settings, {**context.log_fields(name), **(details or {})})
    context.checks.ready["process"] = lambda: "stopping" if process.stopping else None
    return await process.run()


class Runnable(Protocol):
    """A controller, or any other task that runs under a lease."""

    def run(self, stop: asyncio.Event, leader_check: LeaderCheck) -> Coroutine[Any, Any, None]: ...


async def run_all(controllers: Iterable[Runnable], leadership: Leadership, stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        for keeper in controllers:
            group.create_task(keeper.run(stop, leadership))


def new_elector(context: ProcessContext, lease: str) -> Elector:
    api, namespace = context.lease_client(), context.settings.namespace
    return Elector(api, lease, namespace, context.identity, clock=api.clock, metrics=context.metrics.leader)
