"""Structured logging of Croupier and its libraries in one stream, as JSON or as text for a terminal.

A line begins with time, level and message; the other keys follow in alphabetical order, so that equal lines
look equal. On a terminal a line is text with colours, without styles if NO_COLOR is set; otherwise each line
is one JSON object. docs/logs.md lists the keys. Values that look like credentials are hidden, because more
people can read logs than Secrets.
"""

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LogFormat = Literal["auto", "json", "console"]

_SECRET_NAMES = re.compile(
    r"(?i)(authorization|bearer|password|passwd|secret|credential|private_?key|client_?key|id_?token|"
    r"access_?token|refresh_?token|^token$|cookie)"
)
_SECRET_TEXT = re.compile(
    r"(?s)(?P<bearer>(?i:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}"
    r"|(?P<jwt>\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*)"
    r"|(?P<pem>-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----)"
)
_QUOTED = re.compile(r"[\s=\"]|^$")
HIDDEN = "[hidden]"
FIRST = ("time", "level", "event", "message")
"""structlog names the message `event`."""
LAST = ("exception", "stack")
LEVEL_WIDTH = len("warning")


def setup(*, level: str = "info", form: LogFormat = "auto", stream: TextIO | None = None) -> None:
    """Log to `stream` (default stderr), from `level` up."""
    output = stream or sys.stderr
    console = form == "console" or (form == "auto" and output.isatty())
    colours = output.isatty() and not os.environ.get("NO_COLOR")
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_shared(), processors=_render_processors(console, colours)
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_level(level))
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def adjust(level: str) -> None:
    """Change the log level."""
    logging.getLogger().setLevel(_level(level))


def hide_secrets(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """A structlog processor that hides credentials, recognised by name or by content."""
    return {name: HIDDEN if _SECRET_NAMES.search(name) else _hide(value) for name, value in event.items()}


def _hide(value: Any) -> Any:
    if isinstance(value, str):
        return _SECRET_TEXT.sub(lambda match: (match["bearer"] or "") + HIDDEN, value)
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if _SECRET_NAMES.search(str(name)) else _hide(item) for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_hide(item) for item in value]
    return value


def _shared() -> list[Processor]:
    """Processors for Croupier's own and library log lines."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.StackInfoRenderer(),
    ]


def _render_processors(console: bool, colours: bool) -> list[Processor]:
    drop = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if console:
        return [drop, hide_secrets, _ordered, _console_renderer(colours)]
    return [
        drop,
        structlog.processors.format_exc_info,
        hide_secrets,
        structlog.processors.EventRenamer("message"),
        _ordered,
        structlog.processors.JSONRenderer(default=str),
    ]


def _console_renderer(colours: bool) -> structlog.dev.ConsoleRenderer:
    """`time level message key=value ...`, in the order of the keys of JSON."""
    bold, dim, reset = ("\x1b[1m", "\x1b[2m", "\x1b[0m") if colours else ("", "", "")
    levels = structlog.dev.ConsoleRenderer.get_default_level_styles(colours)

    def level(key: str, value: object) -> str:
        return f"{levels.get(str(value), '')}{value!s:<{LEVEL_WIDTH}}{reset}"

    return structlog.dev.ConsoleRenderer(
        columns=[
            structlog.dev.Column("time", lambda key, value: f"{dim}{value}{reset}"),
            structlog.dev.Column("level", level),
            structlog.dev.Column("event", lambda key, value: f"{bold}{value}{reset}"),
            structlog.dev.Column("", lambda key, value: f"{dim}{key}={reset}{_text(value)}"),
        ],
        sort_keys=False,
    )


def _text(value: object) -> str:
    """As in logfmt: quoted if it contains more than one word."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return json.dumps(text, ensure_ascii=False) if _QUOTED.search(text) and isinstance(value, str) else text


def _ordered(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Time, level and message first, then the other keys by name, and a traceback last."""
    first = [name for name in FIRST if name in event]
    rest = sorted(event.keys() - set(FIRST), key=lambda name: (name in LAST, name))
    return {name: event[name] for name in (*first, *rest)}


def _level(name: str) -> int:
    levels = logging.getLevelNamesMapping()
    if name.upper() not in levels:
        raise ValueError(f"log level {name!r} is unknown; use debug, info, warning or error")
    return levels[name.upper()]
