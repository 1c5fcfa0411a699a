"""The active settings, and whether a changed document may replace them.

Invalid settings change nothing: the previous settings stay active until every error is corrected.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from croupier.api import settings, settings_check, settings_source
from croupier.api.settings import Configuration
from croupier.api.settings_check import Problem


@dataclass(frozen=True, slots=True)
class ActiveSettings:
    configuration: Configuration = field(default_factory=Configuration)
    enabled: bool = True
    """If false, the processes keep running and do nothing."""


@dataclass(frozen=True, slots=True)
class RejectedSettings:
    """The settings were rejected because of these errors."""

    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.problems))


@dataclass(frozen=True, slots=True)
class SettingsDiff:
    """The changed paths: those that take effect at once, and those that need a restart."""

    at_once: tuple[str, ...] = ()
    later: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.at_once or self.later)


def read(document: Any) -> ActiveSettings | RejectedSettings:
    """Read settings from a plain document, a ConfigMap or a ModuleConfig."""
    try:
        data, problems = settings_source.settings_in(document), settings_source.problems(document)
    except ValueError as error:
        return RejectedSettings((Problem("", str(error)),))
    if problems:
        return RejectedSettings(tuple(problems))
    return ActiveSettings(settings.read(data), settings_source.is_enabled(document))


def diff(before: Configuration, after: Configuration, *, started: Configuration) -> SettingsDiff:
    """The effect of a change on a process that started with the settings `started`."""
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    restarts = settings_check.restart_paths(started, after)
    changed = sorted(_changed_paths("", old, new))
    waiting = {*restarts, *settings_check.restart_paths(before, after)}
    at_once = tuple(path for path in changed if not any(_is_below(path, restart) for restart in waiting))
    return SettingsDiff(at_once, tuple(restarts))


def _is_below(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.")


def _changed_paths(path: str, old: Any, new: Any) -> Iterator[str]:
    if old == new:
        return
    if not (isinstance(old, dict | None) and isinstance(new, dict | None)):
        yield path
        return
    names = {*(old or {}), *(new or {})}
    if not names:
        yield path
    for name in names:
        yield from _changed_paths(f"{path}.{name}".lstrip("."), (old or {}).get(name), (new or {}).get(name))
