"""`croupier lab install`: install the chart into a lab with a real node."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import terminal
from croupier_lab.cli import arguments

if TYPE_CHECKING:
    from croupier_lab.lab import Lab


def install(
    *,
    cards: Annotated[
        str, typer.Option(metavar="MODEL:COUNT", help="Simulated cards of the real node.")
    ] = "SIM-70GB:4",
    values: Annotated[
        list[Path] | None,
        typer.Option("--values", "-f", metavar="FILE", help="Additional chart values. Repeatable."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="One chart value, as for helm --set. Repeatable."),
    ] = None,
    print_values: Annotated[
        bool,
        typer.Option("--print-values", help="Only load the images and print the chart values of this lab."),
    ] = False,
    name: arguments.Name = "default",
) -> None:
    """Install Croupier into a lab with a real node and wait until every pod is ready (requires root).

    An existing installation is upgraded. The lab must not run Croupier as processes. Helm is built once if it
    is missing. With --print-values, run the printed helm command yourself:

    \b
    croupier lab up --real-node --detach
    croupier lab install
    croupier lab install --cards H100:8 --set settings.capacityManager=CRD
    croupier lab install --print-values > values.yaml
    """
    import asyncio

    from croupier_lab import installation, progress
    from croupier_lab.binaries import BinarySources

    arguments.check_cards(cards)
    wish = installation.InstallOptions(cards, tuple(values or ()), tuple(setting or ()))
    for file in wish.values:
        if not file.is_file():
            terminal.usage_error(f"--values {file}: there is no such file.")
    lab = _existing(name)
    show = progress.to_stderr()
    if print_values:
        chart_values = asyncio.run(installation.prepare(lab, wish, show))
        typer.echo(installation.values_file(lab, wish, chart_values), nl=False)
        return
    ready = asyncio.run(installation.install(lab, wish, BinarySources(), show))
    pods = f"{terminal.plural(ready, 'pod')} {'is' if ready == 1 else 'are'}"
    typer.echo(f"Croupier is installed in lab {lab.name}: {pods} ready.")
    typer.echo(f"  try      kubectl get pods -n {installation.NAMESPACE}")
    typer.echo("  and      croupier cards; croupier doctor")
    typer.echo(f"  with     export KUBECONFIG={lab.kubeconfig}")


def _existing(name: str) -> "Lab":
    from croupier_lab import user_dirs

    option = "" if name == user_dirs.DEFAULT_NAME else f" --name {name}"
    return arguments.find_lab(name, f"start one as root with `croupier lab up --real-node --detach{option}`")
