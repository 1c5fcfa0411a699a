"""Every command and option, from the typer application."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import typer

from croupier.cli import app
from tools.reference import markdown

HEAD: Final = """# Command line

Generated from the command itself; `--help` prints the same.
JSON output and exit codes: [commands.md](../commands.md).

"""


def page() -> str:
    found = list(_verbs("croupier", typer.main.get_command(app)))
    contents = [
        (f"[`{path}`](#{_anchor(path)})", _first(_prose_and_examples(verb)[0])) for path, verb in found
    ]
    return (
        HEAD
        + markdown.table(("command", "description"), contents)
        + "".join(_section(path, verb) for path, verb in found)
    )


def _verbs(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """All commands that can be invoked, in the order of --help."""
    below = getattr(command, "commands", {})
    if not below or getattr(command, "invoke_without_command", False):
        yield path, command
    for name, child in below.items():
        if not child.hidden:
            yield from _verbs(f"{path} {name}", child)


def _section(path: str, verb: Any) -> str:
    says, example = _prose_and_examples(verb)
    usage = " ".join([path, *_arguments(verb), *(["[OPTIONS]"] if _options(verb) else [])])
    parts = [f"\n## {path}\n", f"```text\n{usage}\n```\n", f"{says}\n"]
    if rows := [_row(option) for option in _options(verb)]:
        parts.append(markdown.table(("option", "default", "description"), rows))
    if example:
        parts.append(f"```sh\n{example}\n```\n")
    return "\n".join(parts)


def _prose_and_examples(verb: Any) -> tuple[str, str]:
    """The prose of the help, and the examples at its end."""
    text = inspect.cleandoc(verb.help or "")
    prose, *examples = text.split("\b\n")
    lines = [_remark(line.rstrip()) for block in examples for line in block.strip().splitlines()]
    plain = prose.replace("[bold]", "").replace("[/bold]", "")
    return " ".join(plain.split()), "\n".join(lines)


def _first(prose: str) -> str:
    """The first sentence."""
    return re.split(r"(?<=[.;]) ", prose, maxsplit=1)[0].rstrip(";")


def _remark(line: str) -> str:
    """Turn the remark of an example into a shell comment."""
    return re.sub(r"(?<=\S) {3,}(?=[^\s#])", "    # ", line)


def _arguments(verb: Any) -> list[str]:
    """The positional arguments."""
    arguments = [param for param in verb.params if param.param_type_name == "argument"]
    return [argument.metavar or argument.name.upper() for argument in arguments]


def _options(verb: Any) -> list[Any]:
    return [param for param in verb.params if param.param_type_name == "option" and not param.hidden]


def _row(option: Any) -> tuple[str, str, str]:
    names = ", ".join((*option.opts, *option.secondary_opts))
    spelled = names if option.is_flag else f"{names} {_value(option)}"
    return markdown.code(spelled), markdown.code(_default(option)), option.help or ""


def _value(option: Any) -> str:
    """The metavar of the option; N or TEXT by default."""
    return option.metavar or ("N" if isinstance(option.default, int | float) else "TEXT")


def _default(option: Any) -> str:
    value = option.default
    if option.required:
        return "required"
    if value is None or value is False or value == "" or callable(value):
        return ""
    return "yes" if value is True else f"{value:g}" if isinstance(value, float) else str(value)


def _anchor(heading: str) -> str:
    return heading.replace(" ", "-")
