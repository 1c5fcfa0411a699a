"""Which settings are in force, and whether what stands somewhere may take their place.

A change that cannot be meant changes nothing: the settings of before stay until every error is corrected.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from croupier.api import settings, settings_check, settings_source
from croupier.api.settings import Configuration
from croupier.api.settings_check import Problem


@dataclass(frozen=True, slots=True)
class Order:
    configuration: Configuration = field(default_factory=Configuration)
    enabled: bool = True
    """Off: the processes stay and do nothing."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Every error, and nothing taken over."""

    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.problems))


@dataclass(frozen=True, slots=True)
class News:
    """What is other than before: paths that count at once, and those for which the processes must restart."""

    at_once: tuple[str, ...] = ()
    later: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.at_once or self.later)


def read(document: Any) -> Order | Refused:
    """A plain document, a ConfigMap or a ModuleConfig."""
    try:
        data, found = settings_source.settings_in(document), settings_source.problems(document)
    except ValueError as bad:
        return Refused((Problem("", str(bad)),))
    if found:
        return Refused(tuple(found))
    return Order(settings.read(data), settings_source.is_enabled(document))


def news(before: Configuration, after: Configuration, *, started: Configuration) -> News:
    """What a change means for a process that `started` with other settings, perhaps long before it."""
    old, new = msgspec.to_builtins(before), msgspec.to_builtins(after)
    restarts = settings_check.restarting(started, after)
    changed = sorted(_changed("", old, new))
    waiting = {*restarts, *settings_check.restarting(before, after)}
    at_once = tuple(path for path in changed if not any(_within(path, one) for one in waiting))
    return News(at_once, tuple(restarts))


def _within(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}.")


def _changed(path: str, old: Any, new: Any) -> Iterator[str]:
    if old == new:
        return
    if not (isinstance(old, dict | None) and isinstance(new, dict | None)):
        yield path
        return
    names = {*(old or {}), *(new or {})}
    if not names:
        yield path
    for name in names:
        yield from _changed(f"{path}.{name}".lstrip("."), (old or {}).get(name), (new or {}).get(name))
