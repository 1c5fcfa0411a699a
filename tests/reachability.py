"""Which code can start a process or the shared lab, found by following names in compiled code.

A function reaches the globals that it names, what it names of a module, and what its closure holds; a class
reaches its methods and bases; an object reaches its class. Only code outside of site-packages is followed.
The answer errs on the side of "can start": a branch that is never taken counts.
"""

import asyncio
import functools
import inspect
import multiprocessing
import os
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterable, Iterator
from multiprocessing.context import ForkServerProcess
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import psutil

from croupier_lab.pytest_plugin import RUN

STARTERS: tuple[object, ...] = (
    subprocess,
    multiprocessing,
    ForkServerProcess,
    asyncio.create_subprocess_exec,
    asyncio.create_subprocess_shell,
    os.fork,
    os.posix_spawn,
    psutil.Popen,
    RUN,
)
"""What starts a process, or gives access to the labs of the run."""
STARTER_IDS = frozenset(map(id, STARTERS))

INSTALLED = tuple({sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")})


def starting_processes(codes: Iterable[Iterable[object]]) -> list[bool]:
    """For each group of functions and objects: whether one of them can start a process."""
    groups = [list(_code_objects(group)) for group in codes]
    named_by: dict[int, set[int]] = defaultdict(set)
    objects: dict[int, object] = {}
    pending = [code for group in groups for code in group]
    while pending:
        code = pending.pop()
        if id(code) in objects:
            continue
        objects[id(code)] = code
        for named in set(_code_objects(_named(code))):
            named_by[id(named)].add(id(code))
            pending.append(named)
    starting = _closure(named_by, {key for key, code in objects.items() if _is_starter(code)})
    return [any(id(code) in starting for code in group) for group in groups]


def _closure(edges: dict[int, set[int]], reached: set[int]) -> set[int]:
    pending = list(reached)
    while pending:
        new = edges[pending.pop()] - reached
        reached |= new
        pending += new
    return reached


def _is_starter(code: object) -> bool:
    return id(code) in STARTER_IDS


def _code_objects(values: Iterable[object]) -> Iterator[object]:
    """Functions and classes of the repository, and what starts processes."""
    for value in values:
        if _is_starter(value):
            yield value
        elif isinstance(value, (FunctionType, type)):
            if _is_ours(value.__module__):
                yield value
        elif isinstance(value, dict):
            yield from _code_objects(value.values())
        elif isinstance(value, (list, tuple, set, frozenset)):
            yield from _code_objects(value)
        elif (inner := _wrapped(value)) is not None:
            yield from _code_objects(inner)
        elif not isinstance(value, ModuleType) and _is_ours(type(value).__module__):
            yield type(value)


def _wrapped(value: object) -> tuple[object, ...] | None:
    """What a bound method, a property or a decorated function contains."""
    match value:
        case MethodType():
            return value.__func__, value.__self__
        case staticmethod() | classmethod():
            return (value.__func__,)
        case property():
            return value.fget, value.fset
        case functools.partial() | functools.cached_property():
            return (value.func,)
        case functools._lru_cache_wrapper():
            return (value.__wrapped__,)
    return None


@functools.cache
def _is_ours(module: str | None) -> bool:
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    return file is not None and not file.startswith(INSTALLED)


def _named(code: object) -> Iterator[object]:
    if isinstance(code, type):
        yield from (base for base in code.__bases__ if base is not object)
        yield from vars(code).values()
    elif isinstance(code, FunctionType):
        function: Any = inspect.unwrap(code)
        yield getattr(getattr(code, "hypothesis", None), "inner_test", None)
        yield from (cell.cell_contents for cell in function.__closure__ or () if _is_set(cell))
        for body in _nested(function.__code__):
            yield from _globals(body, function.__globals__)


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 (reading raises if it is empty)
    except ValueError:
        return False
    return True


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _globals(code: CodeType, scope: dict[str, object]) -> Iterator[object]:
    for name in code.co_names:
        value = scope.get(name, sys.modules.get(name))
        yield value
        if isinstance(value, ModuleType):
            yield from (getattr(value, attribute, None) for attribute in code.co_names)
