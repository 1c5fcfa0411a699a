"""Options of `croupier` itself: they may stand before the verb or after it.

An option before the verb becomes the default of every verb that has it, so a value after the verb wins.
"""

from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from typer.core import TyperGroup

from croupier.cli import cluster, terminal, version


class CommandParams(Protocol):
    """A command of typer, as far as its options are concerned."""

    params: list[Any]


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(version.text())
        raise typer.Exit


def root(
    running: typer.Context,
    *,
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
    namespace: cluster.Namespace = None,
    shown: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Croupier allocates GPU cards and CPU limits to pods from one ledger."""
    if terminal.forbids_styles():
        running.color = False  # typer then removes all escape sequences from what the verbs print
    given = {"kubeconfig": kubeconfig, "context": context, "namespace": namespace}
    values = {name: value for name, value in given.items() if value is not None}
    running.default_map = defaults(running.command, values)


def defaults(command: CommandParams, values: dict[str, str | Path]) -> dict[str, Any]:
    """The default_map of a command: for each verb below it, the values of the options that it has."""
    own: dict[str, Any] = {param.name: values[param.name] for param in command.params if param.name in values}
    if isinstance(command, TyperGroup):
        own |= {name: defaults(verb, values) for name, verb in command.commands.items()}
    return own
