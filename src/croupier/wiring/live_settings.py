"""Settings that can change while a process runs.

They come from a file, from the ConfigMap `croupier-settings` or from the ModuleConfig `gpu-operator`. A
process does not start with invalid settings. At run time invalid settings are refused, and the last valid
ones stay active. Work that depends on a changed setting is restarted with the new value, without giving up
its lease; the rest of the process continues. A disabled process stays up and ready, and does nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import structlog

from croupier.api import kinds, settings_source, settings_state
from croupier.api.settings import Configuration
from croupier.api.settings_state import ActiveSettings, RejectedSettings
from croupier.core.pods import disabled
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.cache.watch_state import ReflectorOptions
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import KubeError, NotFound, ServerError, TooManyRequests, Unreachable
from croupier.kube.client.resource import Raw, Resource
from croupier.kube.controller import events
from croupier.kube.controller.event_series import EventType
from croupier.kube.controller.events import EventRecorder
from croupier.kube.serving import component_runner, logs
from croupier.kube.serving.component_runner import Component

Origin: TypeAlias = Path | Literal["configmap", "module"]

REPORTER: Final = "croupier-settings"
POLL_INTERVAL: Final = 5.0
"""Seconds between checks of a file, and between attempts to read the settings at start."""

log = structlog.get_logger(__name__)

DependsOn: TypeAlias = Callable[[Configuration], Any]
SettingsWork: TypeAlias = Callable[[asyncio.Event, Configuration], Awaitable[None]]


class InvalidSettings(KubeError):
    """The settings are invalid; the message contains every error."""


class LiveSettings:
    """The current settings, and work that is restarted when they change."""

    def __init__(self, order: ActiveSettings | None = None) -> None:
        self._current = order or ActiveSettings()
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    @property
    def now(self) -> ActiveSettings:
        return self._current

    @property
    def configuration(self) -> Configuration:
        return self._current.configuration

    @property
    def off(self) -> bool:
        return not self._current.enabled

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    def update(self, order: ActiveSettings) -> None:
        self._current = order
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for listener in self._listeners:
            listener()

    async def run_with(
        self, work: SettingsWork, stop: asyncio.Event, depends_on: DependsOn = lambda _: None
    ) -> None:
        """Run `work` with the current settings until `stop`, and not while disabled.

        It is restarted when `depends_on(settings)` changes. If it returns by itself, this returns too.
        """
        while not stop.is_set():
            order = self._current
            if order.enabled:
                if await self._run_once(work, stop, depends_on, order):
                    return
            else:
                await _wait_for_any(stop.wait(), self._wait_for_change(order, depends_on))

    async def _run_once(
        self, work: SettingsWork, stop: asyncio.Event, depends_on: DependsOn, order: ActiveSettings
    ) -> bool:
        """True when the work has ended; False when it must restart."""
        ending = asyncio.Event()
        working = asyncio.ensure_future(work(ending, order.configuration))
        try:
            await _wait_for_any(stop.wait(), self._wait_for_change(order, depends_on), until=working)
            over = working.done() or stop.is_set()
            ending.set()
            await working
            return over
        finally:
            working.cancel()
            await asyncio.wait({working})

    async def _wait_for_change(self, order: ActiveSettings, depends_on: DependsOn) -> None:
        """Wait until the watched settings differ from those in `order`."""
        while _relevant(order, depends_on) == _relevant(self._current, depends_on):
            await self._changed.wait()


def _relevant(order: ActiveSettings, depends_on: DependsOn) -> tuple[bool, Any]:
    return order.enabled, depends_on(order.configuration) if order.enabled else None


async def _wait_for_any(*waits: Any, until: "asyncio.Future[Any] | None" = None) -> None:
    tasks = {asyncio.ensure_future(wait) for wait in waits}
    try:
        watched = tasks if until is None else {*tasks, until}
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@dataclass(slots=True)
class SettingsWatcher:
    """Watches the settings at their origin and updates the live settings of the process."""

    api: Client
    origin: Origin
    namespace: str
    levels: bool = True
    """Whether the settings control the log level, too."""
    poll_interval: float = POLL_INTERVAL
    live_settings: LiveSettings = field(init=False, default_factory=LiveSettings)
    _started: Configuration = field(init=False, default_factory=Configuration)
    _found: bool = field(init=False, default=True)
    _refused: RejectedSettings | None = field(init=False, default=None)
    _recorder: EventRecorder = field(init=False)

    def __post_init__(self) -> None:
        self._recorder = EventRecorder(self.api, REPORTER, naming=events.stable_name)

    async def load_initial(self) -> ActiveSettings:
        """Read the initial settings; raises InvalidSettings with every error."""
        while True:
            try:
                document = await self._document()
                initial = settings_state.read(document)
            except (Unreachable, ServerError, TooManyRequests) as error:
                log.warning(
                    f"the settings of {self.where} cannot be read yet", source=self.where, error=str(error)
                )
                await asyncio.sleep(self.poll_interval)
                continue
            if isinstance(initial, RejectedSettings):
                raise InvalidSettings(f"{self.where} is invalid: {initial}")
            self._started, self._found = initial.configuration, document is not None
            self._apply(initial)
            return initial

    @property
    def source(self) -> str:
        """Where the initial settings came from."""
        return self.where if self._found else f"{self.where} (not found: defaults)"

    @property
    def where(self) -> str:
        match self.origin:
            case "configmap":
                return f"ConfigMap {self.namespace}/{settings_source.CONFIG_MAP}"
            case "module":
                return f"ModuleConfig {settings_source.MODULE_CONFIG}"
            case path:
                return f"file {path}"

    def components(self) -> list[Component]:
        if isinstance(self.origin, Path):
            return [component_runner.until_cancelled("settings", self._follow_file)]
        store: Store[Raw] = Store(self._kind)
        store.subscribe(lambda change: self._on_change(change.new))
        optional = ReflectorOptions(optional=True)
        reflector = Reflector(self.api, store, selection=self._selection(), rules=optional)
        return [
            Component("events of settings", self._recorder.run),
            component_runner.until_cancelled("settings", reflector.run),
        ]

    @property
    def _kind(self) -> Resource[Raw]:
        return kinds.MODULE_CONFIGS if self.origin == "module" else kinds.CONFIG_MAPS.raw

    @property
    def _name(self) -> str:
        return settings_source.MODULE_CONFIG if self.origin == "module" else settings_source.CONFIG_MAP

    def _selection(self) -> Selection:
        namespace = self.namespace if self._kind.namespaced else None
        return Selection(namespace, fields=f"metadata.name={self._name}")

    async def _document(self) -> Any:
        """The current document; None if there is none."""
        if isinstance(self.origin, Path):
            return await asyncio.to_thread(read_file, self.origin)
        namespace = self.namespace if self._kind.namespaced else None
        try:
            return self._with_kind(await self.api.get(self._kind, self._name, namespace=namespace))
        except NotFound:
            return None  # the first log line says so

    def _with_kind(self, found: Raw) -> Raw:
        """The object with its kind, which items of a list lack."""
        return {**found, "kind": self._kind.kind}

    async def _follow_file(self) -> None:
        while True:
            await asyncio.sleep(self.poll_interval)
            try:
                document = await self._document()
            except InvalidSettings as error:  # a file that is being replaced may be gone for a moment
                log.warning(
                    f"{self.where} cannot be read; the process keeps its settings",
                    source=self.where,
                    error=str(error),
                )
                continue
            self._process(document, None)

    def _on_change(self, found: Raw | None) -> None:
        if found is None:
            log.warning(f"{self.where} was deleted; the process keeps its settings", source=self.where)
            return
        self._process(self._with_kind(found), found)

    def _process(self, document: Any, about: Raw | None) -> None:
        parsed = settings_state.read(document)
        if isinstance(parsed, RejectedSettings):
            if parsed != self._refused:
                self._report(about, "SettingsRefused", f"refused, keeping the current settings: {parsed}")
            self._refused = parsed
            return
        self._refused = None
        before = self.live_settings.now
        if parsed != before:
            self._apply(parsed)
            self._explain(before, parsed, about)

    def _apply(self, order: ActiveSettings) -> None:
        if self.levels:
            logs.adjust(order.configuration.log_level)
        self.live_settings.update(order)

    def _explain(self, before: ActiveSettings, after: ActiveSettings, about: Raw | None) -> None:
        if before.enabled != after.enabled:
            reason = "SwitchedOn" if after.enabled else "SwitchedOff"
            note = "enabled again" if after.enabled else f"disabled: {disabled.EFFECT}"
            self._report(about, reason, note)
        diff = settings_state.diff(before.configuration, after.configuration, started=self._started)
        if diff.at_once:
            self._report(about, "SettingsTaken", f"applied: {', '.join(diff.at_once)}")
        if diff.later:
            self._report(
                about,
                "SettingsNeedRestart",
                f"applied after a restart of the processes: {', '.join(diff.later)}",
            )

    def _report(self, about: Raw | None, reason: str, note: str) -> None:
        loud = reason in ("SettingsRefused", "SettingsNeedRestart", "SwitchedOff")
        switched = reason in ("SwitchedOn", "SwitchedOff")
        message = f"Croupier was {note}" if switched else f"the settings of {self.where} were {note}"
        (log.warning if loud else log.info)(message, source=self.where)
        if about is not None:
            regarding = events.reference_to(self._kind, about)
            kind: EventType = "Warning" if loud else "Normal"
            self._recorder.record(regarding, reason, note, action="Configure", type=kind)


def read_file(path: Path) -> Any:
    try:
        return settings_source.parse(path.read_text(encoding="utf-8"))
    except OSError as missing:
        raise InvalidSettings(f"file {path}: {missing.strerror or missing}") from missing
    except ValueError as bad:
        raise InvalidSettings(f"file {path}: {bad}") from bad
