"""Compare command lines in the documentation with the commands of `croupier`, without running them.

This detects verbs and options that were renamed or removed.
"""

import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import typer

from croupier.cli import app

# Words that may precede a command.
BEFORE: Final = ("sudo", "-E", "exec", "nohup", "do", "then", "!")
ENDS: Final = frozenset("();<>|&")


def commands(text: str) -> Iterator[list[str]]:
    """Each simple command of a shell text, split into words, without here-documents."""
    lines = iter(_joined(text))
    for line in lines:
        words = _words(line.removeprefix("$ "))
        yield from _simple(words)
        if (end := _here_document(words)) is not None:
            for inside in lines:
                if inside.strip() == end:
                    break


def croupier(words: Sequence[str]) -> list[str] | None:
    """The arguments of `croupier`, or None if the words call another program."""
    left = list(words)
    while left and (left[0] in BEFORE or ("=" in left[0] and left[0].split("=")[0].isidentifier())):
        left.pop(0)
    called = bool(left) and (left[0] == "croupier" or left[0].endswith("/bin/croupier"))
    return left[1:] if called else None


def problem(words: Sequence[str], *, whole: bool) -> str:
    """The error of `croupier WORDS`, or an empty string. A `whole` line needs all required arguments."""
    command = _croupier()
    path, left, given = "croupier", list(words), 0
    while left:
        word = left.pop(0)
        if word.startswith("-") and word != "-":
            name, _, attached = word.partition("=")
            option = _option(command, name)
            if option is None:
                return f"{path} has no option {name}"
            if not option.is_flag and not attached and left:
                left.pop(0)
        elif hasattr(command, "commands") and given == 0:
            if word not in command.commands:
                return f"{path} has no verb {word}"
            command, path = command.commands[word], f"{path} {word}"
            if command.context_settings.get("ignore_unknown_options"):
                return ""
        else:
            given += 1
    return _amiss(command, path, given, whole=whole)


@cache
def _croupier() -> Any:
    return typer.main.get_command(app)


def _amiss(command: Any, path: str, given: int, *, whole: bool) -> str:
    places = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    if given > len(places) and all(place.nargs == 1 for place in places):
        return f"{path} takes {len(places)} arguments, not {given}"
    needed = sum(place.required for place in places)
    return f"{path} needs {needed} arguments" if whole and given < needed else ""


def _option(command: Any, name: str) -> Any:
    if name in ("--help", "-h"):
        return _Help
    options = (parameter for parameter in command.params if parameter.param_type_name == "option")
    return next((option for option in options if name in (*option.opts, *option.secondary_opts)), None)


class _Help:
    is_flag = True


def _joined(text: str) -> list[str]:
    return text.replace("\\\n", " ").splitlines()


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        return list(lexer)
    except ValueError:  # a quotation that continues in the next line, or an apostrophe in printed output
        return line.split()


def _simple(words: Sequence[str]) -> Iterator[list[str]]:
    now: list[str] = []
    for word in words:
        if word and set(word) <= ENDS:
            if now:
                yield now
            now = []
        else:
            now.append(word.lstrip("`"))
    if now:
        yield now


def _here_document(words: Sequence[str]) -> str | None:
    return words[words.index("<<") + 1] if "<<" in words[:-1] else None
