"""`croupier settings`: whether settings can be meant, and what there is to set."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import showing, terminal

if TYPE_CHECKING:
    from croupier.api.settings_check import Problem

app = typer.Typer(
    help="Check settings, or print all there are.", no_args_is_help=True, rich_markup_mode="rich"
)


@app.callback()
def settings() -> None:
    """Check settings, or print all there are."""


@app.command()
def check(
    *,
    file: Annotated[
        Path,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Settings, a ConfigMap with them, a ModuleConfig, or values of the chart; - is stdin.",
        ),
    ],
    output: terminal.Output = "text",
) -> None:
    """List every error in settings, by path, with what is allowed there. Exit code 1 if there is one.

    Which kind of file it is, is seen by its `kind`, else by the words at its top. Settings are: in values of
    the chart what stands under `settings`; in a ModuleConfig `spec.settings`; in a ConfigMap the key
    `settings.yaml`; in any other file the whole of it.

    \b
    croupier settings check -f settings.yaml
    croupier settings check -f values.yaml
    kubectl get moduleconfig gpu-operator -o yaml | croupier settings check -f -
    """
    from croupier.api import settings_source

    terminal.check_output(output)
    document, found = read(file)
    if output == "json":
        typer.echo(showing.json([{"path": one.path, "sentence": one.sentence} for one in found]))
    elif found:
        typer.echo(f"{file}: read as {settings_source.PLACES[settings_source.kind_of(document)]}.", err=True)
        for problem in found:
            typer.echo(str(problem))
    elif settings_source.kind_of(document) == "values" and "settings" not in document:
        typer.echo(
            "All settings can be used: these values of the chart have no `settings`, so defaults count."
        )
    else:
        typer.echo("All settings can be used.")
    raise typer.Exit(1 if found else 0)


@app.command()
def show(*, output: terminal.Output = "text") -> None:
    """Print every setting with its default and what it does.

    \b
    croupier settings show
    croupier settings show -o json
    """
    from croupier.api import settings_check, settings_page
    from croupier.cli import tables

    terminal.check_output(output)
    if output == "json":
        typer.echo(showing.json(settings_check.strict()))
        return
    rows = [(one.path, one.default, one.allowed, one.takes_effect, one.says) for one in settings_page.rows()]
    tables.echo(("setting", "default", "allowed", "takes effect", "what it does"), rows)


def read(file: Path) -> "tuple[Any, list[Problem]]":
    """What stands in a file, and what is wrong with it; exit code 2 if it cannot be read."""
    import sys

    import yaml

    from croupier.api import settings_source

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        document = yaml.safe_load(text)
        return document, settings_source.problems(document)
    except OSError as missing:
        terminal.refuse(f"{file}: {missing.strerror or missing}.")
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as bad:
        terminal.refuse(f"{file}: {' '.join(str(bad).split())}")
