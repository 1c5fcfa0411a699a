"""`croupier settings`: whether settings can be meant, and what there is to set."""

from pathlib import Path
from typing import Annotated, Any

import typer

from croupier.cli import showing, terminal

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

    \b
    croupier settings check -f settings.yaml
    kubectl get moduleconfig gpu-operator -o yaml | croupier settings check -f -
    """
    from croupier.api import settings_check

    terminal.check_output(output)
    found = settings_check.problems(read(file))
    if output == "json":
        typer.echo(showing.json([{"path": one.path, "sentence": one.sentence} for one in found]))
    elif found:
        for problem in found:
            typer.echo(str(problem))
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


def read(file: Path) -> Any:
    """What stands in a file, unchecked; exit code 2 if it cannot be read."""
    import sys

    import yaml

    from croupier.api import settings_source

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        document = yaml.safe_load(text)
        return settings_source.settings_in(document)
    except OSError as missing:
        terminal.refuse(f"{file}: {missing.strerror or missing}.")
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as bad:
        terminal.refuse(f"{file}: {' '.join(str(bad).split())}")
