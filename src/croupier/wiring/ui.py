"""`croupier ui`: the web page of the cluster."""

import asyncio
import os
import secrets
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from croupier.api import kinds, market_report
from croupier.capacity.cluster_view import LedgerInformers
from croupier.kube.cache.watch_state import ReflectorOptions
from croupier.kube.client.api_client import Selection
from croupier.kube.client.backoff import Backoff
from croupier.kube.client.concurrency import wait_or_stop
from croupier.kube.serving import component_runner, http_server
from croupier.kube.serving.component_runner import Component
from croupier.kube.serving.http_server import SHUTDOWN_GRACE, CannotListen, ListenOptions
from croupier.ui import files, history_files, session, session_cookie
from croupier.ui.actions import Actions
from croupier.ui.api_contact import ApiContact
from croupier.ui.audits import Audits, RunChecks
from croupier.ui.guards import Guards
from croupier.ui.history_answers import HistoryAnswers
from croupier.ui.history_files import HistoryFiles
from croupier.ui.journal import Journal
from croupier.ui.metrics import PageMetrics
from croupier.ui.publisher import ClusterName, DeltaPublisher
from croupier.ui.rights import RightsReader
from croupier.ui.server import PageParts, PageServer
from croupier.ui.session import (
    BearerAuthenticator,
    HeaderAuthenticator,
    LocalAuthenticator,
    TokenAuthenticator,
)
from croupier.ui.snapshots import Snapshots
from croupier.ui.stream import StreamHub
from croupier.ui.tables import Tables
from croupier.ui.token_review import TokenReviewer
from croupier.ui.user_clients import UserClients
from croupier.ui.viewer import Authenticator, Mode
from croupier.ui.world import World, WorldInformers
from croupier.wiring.process_context import (
    BOUND_PODS,
    DECIDED_RESERVATIONS,
    PENDING_PODS,
    SHUTDOWN_TIMEOUT,
    InformerFactory,
    ProcessContext,
    ProcessOptions,
    open_context,
    run_until_stopped,
)

RECONNECT: Final = ReflectorOptions(Backoff(first=0.2, most=2.0), optional=True)
"""A page is watched by people: it is current again within seconds after the API server is."""


@dataclass(frozen=True, slots=True)
class PageOptions:
    listen: ListenOptions
    mode: Mode = "local"
    any_port: bool = False
    """Use a free port if the port is taken."""
    actions: tuple[str, ...] = ()
    session_key: Path | None = None
    history: Path | None = None
    opens_browser: bool = False
    answer_timeout: float = 2.0
    """Seconds that the API server has for its first answer, in mode local."""


async def work(
    settings: ProcessOptions, page: PageOptions, run_checks: RunChecks, tell: Callable[[str], None]
) -> int:
    """Serve the page until a signal; `tell` prints for the person at the terminal of mode local."""
    session.check_listen(page.mode, page.listen)
    async with open_context(settings) as context, _users(context) as users:
        if page.mode == "local":
            await context.api.api_groups(timeout=page.answer_timeout)  # a person learns at once that it fails
        caches = InformerFactory(context.api, context.metrics, RECONNECT)
        metrics = PageMetrics(context.metrics.registry)
        tables = Tables(secrets.token_hex(4))
        informers = _informers(caches, settings.namespace)
        world = World(informers, tables, clock=context.api.clock)
        contact = ApiContact(context.api, caches.reflectors())
        hub = StreamHub(tables, lambda: contact.last, metrics)
        publisher = DeltaPublisher(world, hub, contact, name=_name(context), metrics=metrics)
        history = HistoryAnswers(_journal(page.history), tables)
        publisher.listeners.append(history.record)
        metrics.history_bytes.set_function(lambda: history.size)
        authenticator = _authenticator(context, page)
        rights = RightsReader(
            context.api,
            namespaces=_namespaces(caches, informers),
            pools=lambda: informers.cluster.pools.store,
        )
        server = PageServer(
            PageParts(
                world=world,
                hub=hub,
                snapshots=Snapshots(tables, metrics),
                history=history,
                audits=Audits(users, run_checks),
                files=files.load(),
                authenticator=authenticator,
                rights=rights.of,
                users=users,
                actions=Actions(world, page.actions, metrics=metrics),
            ),
            session.login_routes(authenticator),
        )
        guarded = Guards(
            server.app(), authenticator, refused=lambda reason: metrics.refused.labels(reason).inc()
        )
        terminal = Terminal(page, authenticator, tell)

        async def serve(stop: asyncio.Event) -> None:
            await wait_or_stop(stop, publisher.published.wait())
            if stop.is_set():
                return
            async with _listening(guarded, page) as address:
                terminal.announce(address)
                await stop.wait()
                hub.close()

        async def record(stop: asyncio.Event) -> None:
            await stop.wait()
            history.close()

        context.checks.ready["page"] = lambda: None if publisher.published.is_set() else "reading the cluster"
        loops = {
            "api contact": contact.run,
            "publisher": publisher.run,
            "beats": publisher.beat,
            "explanations": world.waiting.run,
        }
        return await run_until_stopped(
            context,
            [
                *caches.components(),
                Component("history", record),
                *(component_runner.until_cancelled(name, run) for name, run in loops.items()),
                Component("page", serve, grace=SHUTDOWN_GRACE + SHUTDOWN_TIMEOUT),
            ],
            name="croupier ui",
        )


@asynccontextmanager
async def _users(context: ProcessContext) -> AsyncIterator[UserClients]:
    users = UserClients(context.api, observe=context.metrics.request)
    try:
        yield users
    finally:
        await users.close()


def _informers(caches: InformerFactory, namespace: str) -> WorldInformers:
    """Each is named after its kind, because the page tells which kinds it cannot read."""

    def follow(resource: Any, selection: Selection = Selection()) -> Any:  # noqa: B008  # frozen
        return caches.follow(resource, selection, name=resource.kind)

    return WorldInformers(
        cluster=LedgerInformers(
            nodes=follow(kinds.NODES),
            devices=follow(kinds.GPU_DEVICES),
            pools=follow(kinds.GPU_POOLS),
            pods=follow(kinds.PODS, BOUND_PODS),
            reservations=follow(kinds.RESERVATIONS, DECIDED_RESERVATIONS),
            inventories=follow(kinds.GPU_NODE_INVENTORIES),
        ),
        records=follow(kinds.NODE_RESERVATIONS),
        pending=caches.follow(kinds.PODS, PENDING_PODS, name="Pod (pending)"),
        leases=follow(kinds.LEASES, Selection(namespace, labels=market_report.LEASE_SELECTOR)),
    )


def _namespaces(caches: InformerFactory, informers: WorldInformers) -> Callable[[], Iterable[str]]:
    """All namespaces; where they cannot be listed, those that have pods or Reservations."""
    listed = caches.follow(kinds.NAMESPACES, name=kinds.NAMESPACES.kind).store
    used: list[Any] = [
        informer.store.index(lambda item: (item.metadata.namespace,))
        for informer in (informers.cluster.pods, informers.pending, informers.cluster.reservations)
    ]

    def known() -> Iterable[str]:
        return {namespace.metadata.name for namespace in listed}.union(*(index.values() for index in used))

    return known


def _name(context: ProcessContext) -> ClusterName:
    connection = context.api.config
    return ClusterName(connection.server, connection.context)


def _journal(folder: Path | None) -> Journal:
    if folder is None:
        return Journal()
    store = HistoryFiles(folder)
    return Journal(
        store,
        store.load(),
        max_bytes=history_files.MAX_BYTES,
        max_seconds=history_files.MAX_SECONDS,
    )


def _user_key() -> Path:
    """Where the key of local sessions is, by the XDG base directory specification."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local/state") / "croupier" / "session-key"


def _authenticator(context: ProcessContext, page: PageOptions) -> Authenticator:
    match page.mode:
        case "local":
            return LocalAuthenticator(context.api, session_cookie.user_key(page.session_key or _user_key()))
        case "bearer":
            return BearerAuthenticator(TokenReviewer(context.api.config))
        case "token":
            return TokenAuthenticator(
                TokenReviewer(context.api.config), session_cookie.read_key(page.session_key)
            )
        case "headers":
            return HeaderAuthenticator(page.listen)


@asynccontextmanager
async def _listening(application: Guards, page: PageOptions) -> AsyncIterator[ListenOptions]:
    async with AsyncExitStack() as stack:
        try:
            listening = await stack.enter_async_context(http_server.serve(application, page.listen))
        except CannotListen:
            if not page.any_port:
                raise
            free = replace(page.listen, address=replace(page.listen.address, port=0))
            listening = await stack.enter_async_context(http_server.serve(application, free))
        yield listening


class Terminal:
    """Tells the person at the terminal where the page is. In a cluster it tells nothing."""

    def __init__(self, page: PageOptions, authenticator: Authenticator, tell: Callable[[str], None]) -> None:
        self._page = page
        self._authenticator = authenticator
        self._tell = tell

    def announce(self, listen: ListenOptions) -> None:
        if not isinstance(self._authenticator, LocalAuthenticator):
            return
        local = self._authenticator
        link = f"{listen.url}{local.open_path}"
        self._tell(f"The page is open at {link}")
        self._tell("The link works once. Ctrl-C ends the page.")
        local.announce = lambda path: self._tell(f"To open it in another browser: {listen.url}{path}")
        if self._page.opens_browser:
            webbrowser.open(link)
