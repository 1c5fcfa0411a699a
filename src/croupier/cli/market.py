"""`croupier market`: the verbs of the CPU market; croupier_lab adds `simulate` and `trace`."""

import typer

from croupier.cli import market_run, market_status

app = typer.Typer(help="CPU limits that follow demand.", no_args_is_help=True)
app.command("status")(market_status.status)
app.command("run")(market_run.run)
