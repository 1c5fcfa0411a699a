"""Every log call of the source with its keys, found by parsing it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.reference.metrics import SOURCE

LOGGERS: Final = frozenset({"log", "_log"})
LEVELS: Final = frozenset({"debug", "info", "warning", "error", "exception"})


@dataclass(frozen=True, slots=True)
class LogCall:
    where: str
    """File and line, relative to the source."""
    begins: str
    """The literal text before the first value; empty if a variable holds the sentence."""
    names_object: bool
    """Whether the message contains a value, or is a variable."""
    keys: tuple[str, ...]


def all_calls() -> list[LogCall]:
    return [call for path in sorted(SOURCE.rglob("*.py")) for call in _calls(path)]


def _calls(path: Path) -> Iterator[LogCall]:
    file = path.relative_to(SOURCE).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=func, args=[message, *more]) if _is_log(func):
                keys = tuple(keyword.arg or "**" for keyword in node.keywords)
                begins, names_object = _described(message)
                yield LogCall(f"{file}:{node.lineno}", begins, names_object or bool(more), keys)


def _is_log(func: ast.expr) -> bool:
    match func:
        case ast.Attribute(value=ast.Name(id=logger), attr=level):
            return logger in LOGGERS and level in LEVELS
        case ast.IfExp(body=body):  # (log.warning if loud else log.info)(...)
            return _is_log(body)
    return False


def _described(message: ast.expr) -> tuple[str, bool]:
    match message:
        case ast.Constant(value=str(text)):
            return text, False
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text, True
        case ast.BinOp(left=left):
            return _described(left)[0], True
    return "", True


def context_keys() -> set[str]:
    """The keys that are bound for all lines of a task."""
    return {key for path in SOURCE.rglob("*.py") for key in _bound(path)}


def _bound(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id="bind_contextvars" | "bound_contextvars")):
                yield from (keyword.arg for keyword in node.keywords if keyword.arg)
