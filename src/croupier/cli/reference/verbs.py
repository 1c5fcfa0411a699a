"""Every verb and option, from the command itself."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, Final

import typer

from croupier.cli import app
from croupier.cli.reference import paper

HEAD: Final = """# Command line

Generated from the command itself; `--help` of each verb says the same.
What verbs print as JSON, and their exit codes: [commands.md](../commands.md).

"""


def page() -> str:
    found = list(_verbs("croupier", typer.main.get_command(app)))
    contents = [(f"[`{path}`](#{_anchor(path)})", _first(_said(verb)[0])) for path, verb in found]
    return HEAD + paper.table(("verb", "does"), contents) + "".join(_section(*one) for one in found)


def _verbs(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Those that do something themselves, in the order of --help."""
    below = getattr(command, "commands", {})
    if not below or getattr(command, "invoke_without_command", False):
        yield path, command
    for name, one in below.items():
        if not one.hidden:
            yield from _verbs(f"{path} {name}", one)


def _section(path: str, verb: Any) -> str:
    says, example = _said(verb)
    usage = " ".join([path, *_places(verb), *(["[OPTIONS]"] if _options(verb) else [])])
    parts = [f"\n## {path}\n", f"```text\n{usage}\n```\n", f"{says}\n"]
    if rows := [_row(one) for one in _options(verb)]:
        parts.append(paper.table(("option", "default", "what it does"), rows))
    if example:
        parts.append(f"```sh\n{example}\n```\n")
    return "\n".join(parts)


def _said(verb: Any) -> tuple[str, str]:
    """What the help says in prose, and the examples at its end."""
    text = inspect.cleandoc(verb.help or "")
    prose, *examples = text.split("\b\n")
    lines = [_remark(line.rstrip()) for block in examples for line in block.strip().splitlines()]
    plain = prose.replace("[bold]", "").replace("[/bold]", "")
    return " ".join(plain.split()), "\n".join(lines)


def _first(prose: str) -> str:
    """Its first sentence."""
    return re.split(r"(?<=[.;]) ", prose, maxsplit=1)[0].rstrip(";")


def _remark(line: str) -> str:
    """What an example says about itself, as a shell would skip it."""
    return re.sub(r"(?<=\S) {3,}(?=[^\s#])", "    # ", line)


def _places(verb: Any) -> list[str]:
    """The words it takes, as its help writes them."""
    found = [one for one in verb.params if one.param_type_name == "argument"]
    return [one.metavar or one.name.upper() for one in found]


def _options(verb: Any) -> list[Any]:
    return [one for one in verb.params if one.param_type_name == "option" and not one.hidden]


def _row(option: Any) -> tuple[str, str, str]:
    names = ", ".join((*option.opts, *option.secondary_opts))
    spelled = names if option.is_flag else f"{names} {_value(option)}"
    return paper.code(spelled), paper.code(_default(option)), option.help or ""


def _value(option: Any) -> str:
    """A plain number or text where its help names nothing better."""
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
