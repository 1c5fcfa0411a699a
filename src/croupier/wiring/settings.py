"""Settings that can change while a process runs.

They come from a file, from the ConfigMap `croupier-settings` or from the ModuleConfig `gpu-operator`. A
process does not start with invalid settings. At run time invalid settings are refused, and the last valid
ones stay active. Work that depends on a changed setting is restarted with the new value, without giving up
its lease; the rest of the process continues. A disabled process stays up and ready, and does nothing.
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
"""Seconds between checks of a file, and between attempts to read the settings at start."""

log = structlog.get_logger(__name__)

Minds: TypeAlias = Callable[[Configuration], Any]
Work: TypeAlias = Callable[[asyncio.Event, Configuration], Awaitable[None]]


class BadSettings(KubeError):
    """The settings are invalid; the message contains every error."""


class Orders:
    """The current settings, and work that is restarted when they change."""

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
        changed, self._news = self._news, asyncio.Event()
        changed.set()

    async def obeyed(self, work: Work, stop: asyncio.Event, minds: Minds = lambda _: None) -> None:
        """Run `work` with the current settings until `stop`, and not while disabled.

        It is restarted when `depends_on(settings)` changes. If it returns by itself, this returns too.
        """
        while not stop.is_set():
            order = self._now
            if order.enabled:
                if await self._worked(work, stop, minds, order):
                    return
            else:
                await _either(stop.wait(), self._other(order, minds))

    async def _worked(self, work: Work, stop: asyncio.Event, minds: Minds, order: Order) -> bool:
        """True when the work has ended; False when it must restart."""
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
        """Wait until the watched settings differ from those in `order`."""
        while _minded(order, minds) == _minded(self._now, minds):
            await self._news.wait()


def _minded(order: Order, minds: Minds) -> tuple[bool, Any]:
    return order.enabled, minds(order.configuration) if order.enabled else None


async def _either(*waits: Any, until: "asyncio.Future[Any] | None" = None) -> None:
    tasks = {asyncio.ensure_future(wait) for wait in waits}
    try:
        watched = tasks if until is None else {*tasks, until}
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@dataclass(slots=True)
class Following:
    """Watches the settings at their origin and updates the live settings of the process."""

    api: Client
    origin: Origin
    namespace: str
    levels: bool = True
    """Whether the settings control the log level, too."""
    look: float = LOOK
    orders: Orders = field(init=False, default_factory=Orders)
    _started: Configuration = field(init=False, default_factory=Configuration)
    _refused: Refused | None = field(init=False, default=None)
    _recorder: Recorder = field(init=False)

    def __post_init__(self) -> None:
        self._recorder = Recorder(self.api, REPORTER, naming=naming)

    async def begin(self) -> Order:
        """Read the initial settings; raises InvalidSettings with every error."""
        while True:
            try:
                initial = settings_order.read(await self._document())
            except (Unreachable, ServerError, TooManyRequests) as error:
                log.warning("cannot read the settings yet", error=str(error))
                await asyncio.sleep(self.look)
                continue
            if isinstance(initial, Refused):
                raise BadSettings(f"{self.where} is invalid: {initial}")
            self._started = initial.configuration
            self._give(initial)
            return initial

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
        """The current document; None if there is none."""
        if isinstance(self.origin, Path):
            return await asyncio.to_thread(of_file, self.origin)
        namespace = self.namespace if self._kind.namespaced else None
        try:
            return self._told(await self.api.get(self._kind, self._name, namespace=namespace))
        except NotFound:
            log.info("no settings found: using the defaults", where=self.where)
            return None

    def _told(self, found: Raw) -> Raw:
        """The object with its kind, which items of a list lack."""
        return {**found, "kind": self._kind.kind}

    async def _follow_file(self) -> None:
        while True:
            await asyncio.sleep(self.look)
            try:
                document = await self._document()
            except BadSettings as error:  # a file that is being replaced may be gone for a moment
                log.warning("cannot read the settings: keeping the current ones", error=str(error))
                continue
            self._judge(document, None)

    def _seen(self, found: Raw | None) -> None:
        if found is None:
            log.warning("the settings were deleted: keeping the current ones", where=self.where)
            return
        self._judge(self._told(found), found)

    def _judge(self, document: Any, about: Raw | None) -> None:
        parsed = settings_order.read(document)
        if isinstance(parsed, Refused):
            if parsed != self._refused:
                self._tell(about, "SettingsRefused", f"refused, keeping the current settings: {parsed}")
            self._refused = parsed
            return
        self._refused = None
        before = self.orders.now
        if parsed != before:
            self._give(parsed)
            self._explain(before, parsed, about)

    def _give(self, order: Order) -> None:
        if self.levels:
            logs.adjust(order.configuration.log_level)
        self.orders.give(order)

    def _explain(self, before: Order, after: Order, about: Raw | None) -> None:
        if before.enabled != after.enabled:
            reason = "SwitchedOn" if after.enabled else "SwitchedOff"
            note = "enabled again" if after.enabled else "disabled: the processes keep running and do nothing"
            self._tell(about, reason, note)
        diff = settings_order.news(before.configuration, after.configuration, started=self._started)
        if diff.at_once:
            self._tell(about, "SettingsTaken", f"applied: {', '.join(diff.at_once)}")
        if diff.later:
            self._tell(
                about,
                "SettingsNeedRestart",
                f"applied after a restart of the processes: {', '.join(diff.later)}",
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
    """The same name from every process, so that the Event is written once."""
    content = f"{what.regarding.uid} {what.reason} {what.note}"
    return events.name(what, hashlib.sha256(content.encode()).hexdigest()[:16])
