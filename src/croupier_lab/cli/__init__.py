"""The verbs of the local cluster: `croupier lab`, `croupier demo`, `croupier market simulate` and `trace`."""

import typer

from croupier_lab.cli import demo, lab, simulate
from croupier_lab.errors import LabError


def add_verbs(app: typer.Typer, market: typer.Typer) -> tuple[type[Exception], ...]:
    """Add the verbs to `croupier` and `croupier market`; the errors whose message is for the user."""
    app.info.epilog = "Start here: [bold]croupier demo[/bold]"
    app.add_typer(lab.app, name="lab", rich_help_panel="Local clusters")
    app.command("demo", rich_help_panel="Local clusters")(demo.demo)
    market.command("simulate")(simulate.simulate)
    market.command("trace")(simulate.trace)
    return (LabError,)
