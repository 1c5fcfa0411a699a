"""`croupier settings`: validate settings, or list all of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import rendering, terminal

if TYPE_CHECKING:
    from croupier.api.settings_check import Problem

app = typer.Typer(
    help="Validate settings, or list all of them.", no_args_is_help=True, rich_markup_mode="rich"
)


@app.callback()
def settings() -> None:
    """Validate settings, or list all of them."""


@app.command()
def check(
    *,
    file: Annotated[
        Path,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE",
            help="Settings, a ConfigMap with settings, a ModuleConfig, or chart values; - is stdin.",
        ),
    ],
    output: terminal.Output = "text",
) -> None:
    """List every error in the settings, with its path and the allowed values. Exit code 1 if there is one.

    The kind of file is detected from its `kind` or its top-level keys. The settings are: `settings` in chart
    values, `spec.settings` in a ModuleConfig, the key `settings.yaml` in a ConfigMap, and otherwise the whole
    file.

    \b
    croupier settings check -f settings.yaml
    croupier settings check -f values.yaml
    kubectl get moduleconfig gpu-operator -o yaml | croupier settings check -f -
    """
    from croupier.api import settings_source

    terminal.check_output(output)
    document, problems = read(file)
    if output == "json":
        data = [{"path": problem.path, "sentence": problem.sentence} for problem in problems]
        typer.echo(rendering.json(data))
    elif problems:
        typer.echo(
            f"{file}: read as {settings_source.DOCUMENT_KINDS[settings_source.kind_of(document)]}.", err=True
        )
        for problem in problems:
            typer.echo(str(problem))
    elif settings_source.kind_of(document) == "values" and "settings" not in document:
        typer.echo("All settings are valid: these chart values have no `settings`, so the defaults apply.")
    else:
        typer.echo("All settings are valid.")
    raise typer.Exit(1 if problems else 0)


@app.command()
def show(*, output: terminal.Output = "text") -> None:
    """List every setting with its default and description.

    \b
    croupier settings show
    croupier settings show -o json
    """
    from croupier.api import settings_check, settings_page
    from croupier.cli import tables

    terminal.check_output(output)
    if output == "json":
        typer.echo(rendering.json(settings_check.strict()))
        return
    rows = [
        (setting.path, setting.default, setting.allowed, setting.takes_effect, setting.description)
        for setting in settings_page.rows()
    ]
    tables.echo(("setting", "default", "allowed", "takes effect", "description"), rows)


def read(file: Path) -> "tuple[Any, list[Problem]]":
    """The document in the file and its problems; exit code 2 if the file cannot be read."""
    import sys

    from croupier.api import settings_source

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        document = settings_source.parse(text)
        return document, settings_source.problems(document)
    except OSError as missing:
        terminal.usage_error(f"{file}: {missing.strerror or missing}.")
    except ValueError as bad:
        terminal.usage_error(f"{file}: {' '.join(str(bad).split())}")
