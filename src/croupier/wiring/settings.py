"""Settings that change while a process runs.

They stand in a file, in the ConfigMap `croupier-settings` or in the ModuleConfig `gpu-operator`. What is
wrong with them keeps a process from starting; what becomes wrong later is refused, and the settings of
before stay in force. Who works by them ends and begins again with the new ones, within its term of office:
nothing else of the process notices. Switched off, a process stays up and ready and does nothing.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import structlog
import yaml

from croupier.api import kinds, settings_order, settings_source
from croupier.api.settings import Configuration
from croupier.api.settings_order import Order, Refused
from croupier.kube import events, logs, run
from croupier.kube.client import Client, Selection
from croupier.kube.errors import KubeError, NotFound, ServerError, TooManyRequests, Unreachable
from croupier.kube.events import Recorder
from croupier.kube.journal import Happening
from croupier.kube.reflector import Reflector
from croupier.kube.resource import Raw, Resource
from croupier.kube.resumption import Rules
from croupier.kube.run import Part
from croupier.kube.store import Store

Origin: TypeAlias = Path | Literal["configmap", "module"]

MODULE_CONFIGS: Final[Resource[Raw]] = Resource(
    "deckhouse.io", "v1alpha1", "moduleconfigs", "ModuleConfig", False, dict
)
REPORTER: Final = "croupier-settings"
LOOK: Final = 5.0
"""Seconds between looks at a file, and between attempts to read settings at the start."""

log = structlog.get_logger(__name__)

Minds: TypeAlias = Callable[[Configuration], Any]
Work: TypeAlias = Callable[[asyncio.Event, Configuration], Awaitable[None]]


class BadSettings(KubeError):
    """They cannot be meant; every error is in the sentence."""


class Orders:
    """The settings of the day, for whoever works by them."""

    def __init__(self, order: Order | None = None) -> None:
        self._now = order or Order()
        self._news = asyncio.Event()

    @property
    def now(self) -> Order:
        return self._now

    @property
    def configuration(self) -> Configuration:
        return self._now.configuration

    @property
    def off(self) -> bool:
        return not self._now.enabled

    def give(self, order: Order) -> None:
        self._now = order
        before, self._news = self._news, asyncio.Event()
        before.set()

    async def obeyed(self, work: Work, stop: asyncio.Event, minds: Minds = lambda _: None) -> None:
        """Have `work` done by the settings of the day, until `stop`; not at all while we are switched off.

        It ends and begins anew when what it minds of them changes. Work that ends unasked is over.
        """
        while not stop.is_set():
            order = self._now
            if order.enabled:
                if await self._worked(work, stop, minds, order):
                    return
            else:
                await _either(stop.wait(), self._other(order, minds))

    async def _worked(self, work: Work, stop: asyncio.Event, minds: Minds, order: Order) -> bool:
        """True when it is over; False when it is to begin anew."""
        ending = asyncio.Event()
        working = asyncio.ensure_future(work(ending, order.configuration))
        try:
            await _either(stop.wait(), self._other(order, minds), until=working)
            over = working.done() or stop.is_set()
            ending.set()
            await working
            return over
        finally:
            working.cancel()
            await asyncio.wait({working})

    async def _other(self, order: Order, minds: Minds) -> None:
        """Returns when what is minded is other than in `order`."""
        while _minded(order, minds) == _minded(self._now, minds):
            await self._news.wait()


def _minded(order: Order, minds: Minds) -> tuple[bool, Any]:
    return order.enabled, minds(order.configuration) if order.enabled else None


async def _either(*waits: Any, until: "asyncio.Future[Any] | None" = None) -> None:
    tasks = {asyncio.ensure_future(one) for one in waits}
    try:
        watched = tasks if until is None else {*tasks, until}
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.wait(tasks)


@dataclass(slots=True)
class Following:
    """Follows settings where they stand, and gives the orders of this process."""

    api: Client
    origin: Origin
    namespace: str
    levels: bool = True
    """Whether what is logged goes by the settings, too."""
    look: float = LOOK
    orders: Orders = field(init=False, default_factory=Orders)
    _started: Configuration = field(init=False, default_factory=Configuration)
    _refused: Refused | None = field(init=False, default=None)
    _recorder: Recorder = field(init=False)

    def __post_init__(self) -> None:
        self._recorder = Recorder(self.api, REPORTER, naming=naming)

    async def begin(self) -> Order:
        """The settings to start with; BadSettings names every error."""
        while True:
            try:
                found = settings_order.read(await self._document())
            except (Unreachable, ServerError, TooManyRequests) as error:
                log.warning("cannot read the settings yet", error=str(error))
                await asyncio.sleep(self.look)
                continue
            if isinstance(found, Refused):
                raise BadSettings(f"{self.where} cannot be used: {found}")
            self._started = found.configuration
            self._give(found)
            return found

    @property
    def where(self) -> str:
        match self.origin:
            case "configmap":
                return f"ConfigMap {self.namespace}/{settings_source.CONFIG_MAP}"
            case "module":
                return f"ModuleConfig {settings_source.MODULE}"
            case path:
                return f"file {path}"

    def parts(self) -> list[Part]:
        if isinstance(self.origin, Path):
            return [run.endless("settings", self._follow_file)]
        store: Store[Raw] = Store(self._kind)
        store.subscribe(lambda change: self._seen(change.new))
        optional = Rules(optional=True)
        reflector = Reflector(self.api, store, selection=self._selection(), rules=optional)
        return [Part("events of settings", self._recorder.run), run.endless("settings", reflector.run)]

    @property
    def _kind(self) -> Resource[Raw]:
        return MODULE_CONFIGS if self.origin == "module" else kinds.CONFIG_MAPS.raw

    @property
    def _name(self) -> str:
        return settings_source.MODULE if self.origin == "module" else settings_source.CONFIG_MAP

    def _selection(self) -> Selection:
        namespace = self.namespace if self._kind.namespaced else None
        return Selection(namespace, fields=f"metadata.name={self._name}")

    async def _document(self) -> Any:
        """What stands there now; None if nothing does."""
        if isinstance(self.origin, Path):
            return await asyncio.to_thread(of_file, self.origin)
        namespace = self.namespace if self._kind.namespaced else None
        try:
            return self._told(await self.api.get(self._kind, self._name, namespace=namespace))
        except NotFound:
            log.info("there are no settings: the defaults are in force", where=self.where)
            return None

    def _told(self, found: Raw) -> Raw:
        """Items of a list do not say what they are."""
        return {**found, "kind": self._kind.kind}

    async def _follow_file(self) -> None:
        while True:
            await asyncio.sleep(self.look)
            try:
                document = await self._document()
            except BadSettings as error:  # a file that is being replaced may be gone for a moment
                log.warning("cannot read the settings: those of before stay in force", error=str(error))
                continue
            self._judge(document, None)

    def _seen(self, found: Raw | None) -> None:
        if found is None:
            log.warning("the settings are gone: those of before stay in force", where=self.where)
            return
        self._judge(self._told(found), found)

    def _judge(self, document: Any, about: Raw | None) -> None:
        found = settings_order.read(document)
        if isinstance(found, Refused):
            if found != self._refused:
                self._tell(about, "SettingsRefused", f"not taken over, those of before stay: {found}")
            self._refused = found
            return
        self._refused = None
        before = self.orders.now
        if found != before:
            self._give(found)
            self._explain(before, found, about)

    def _give(self, order: Order) -> None:
        if self.levels:
            logs.adjust(order.configuration.log_level)
        self.orders.give(order)

    def _explain(self, before: Order, after: Order, about: Raw | None) -> None:
        if before.enabled != after.enabled:
            word = "SwitchedOn" if after.enabled else "SwitchedOff"
            note = "at work again" if after.enabled else "switched off: the processes stay and do nothing"
            self._tell(about, word, note)
        news = settings_order.news(before.configuration, after.configuration, started=self._started)
        if news.at_once:
            self._tell(about, "SettingsTaken", f"in force now: {', '.join(news.at_once)}")
        if news.later:
            self._tell(
                about,
                "SettingsNeedRestart",
                f"in force when the processes have started again: {', '.join(news.later)}",
            )

    def _tell(self, about: Raw | None, reason: str, note: str) -> None:
        loud = reason in ("SettingsRefused", "SettingsNeedRestart")
        (log.warning if loud else log.info)(f"settings: {note}", where=self.where)
        if about is not None:
            regarding = events.about(self._kind, about)
            kind: Literal["Normal", "Warning"] = "Warning" if loud else "Normal"
            self._recorder.record(regarding, reason, note, action="Configure", type=kind)


def of_file(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as missing:
        raise BadSettings(f"file {path}: {missing.strerror or missing}") from missing
    except (yaml.YAMLError, UnicodeDecodeError) as bad:
        raise BadSettings(f"file {path}: {' '.join(str(bad).split())}") from bad


def naming(what: Happening) -> str:
    """The same from every process: it is told once, though each of them takes it over."""
    words = f"{what.regarding.uid} {what.reason} {what.note}"
    return events.name(what, hashlib.sha256(words.encode()).hexdigest()[:16])
