"""The `croupier` command; one module per verb.

Verbs import their dependencies inside the function, so that `--help` and completion stay fast. An error the
user can act on is one sentence on stderr and exit code 1. Invalid options exit with 2, Ctrl-C with 130.
"""

import sys

import typer

from croupier.cli import (
    audit,
    available,
    card_moves,
    cards,
    demo,
    doctor,
    explain,
    extender,
    fallback,
    lab,
    ledger,
    manager,
    market,
    node,
    pools,
    reservations,
    scheduler_config,
    settings,
    uninstall,
    version,
    webhook,
    webhook_config,
    what_if,
)

app = typer.Typer(
    name="croupier",
    help="Croupier allocates GPU cards and CPU limits to pods from one ledger.",
    epilog="Start here: [bold]croupier demo[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(lab.app, name="lab", rich_help_panel="Local clusters")
app.command("demo", rich_help_panel="Local clusters")(demo.demo)
app.add_typer(explain.app, name="explain", rich_help_panel="Allocation")
app.command("what-if", rich_help_panel="Allocation")(what_if.what_if)
app.command("fallback", rich_help_panel="Allocation")(fallback.fallback)
app.command("available", rich_help_panel="Allocation")(available.available)
app.command("reservations", rich_help_panel="Allocation")(reservations.reservations)
app.command("ledger", rich_help_panel="Allocation")(ledger.ledger)
app.command("audit", rich_help_panel="Allocation")(audit.audit)
app.command("cards", rich_help_panel="Cards and pools")(cards.cards)
app.add_typer(pools.app, name="pools", rich_help_panel="Cards and pools")
app.command("assign", rich_help_panel="Cards and pools")(card_moves.assign)
app.command("unassign", rich_help_panel="Cards and pools")(card_moves.unassign)
app.command("drain", rich_help_panel="Cards and pools")(card_moves.drain)
app.command("retire", rich_help_panel="Cards and pools")(card_moves.retire)
app.add_typer(market.app, name="market", rich_help_panel="CPU limits")
app.command("manager", rich_help_panel="Processes")(manager.manager)
app.command("extender", rich_help_panel="Processes")(extender.extender)
app.command("node", rich_help_panel="Processes")(node.node)
app.command("webhook", rich_help_panel="Processes")(webhook.webhook)
app.command("webhook-config", rich_help_panel="Processes")(webhook_config.webhook_config)
app.command("scheduler-config", rich_help_panel="Processes")(scheduler_config.scheduler_config)
app.add_typer(settings.app, name="settings", rich_help_panel="Processes")
app.command("doctor", rich_help_panel="Processes")(doctor.doctor)
app.command("uninstall", rich_help_panel="Processes")(uninstall.uninstall)
app.command("version", rich_help_panel="About")(version.version)

INTERRUPTED = 130


def main() -> None:
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception as error:
        if not _is_for_people(error):
            raise
        sys.stderr.write(f"croupier: {error}\n")
        sys.exit(1)


def _is_for_people(error: Exception) -> bool:
    """Whether the message explains the problem to the user. Any other exception is a bug and is raised."""
    from croupier.kube.errors import KubeError
    from croupier.lab.errors import LabError

    return isinstance(error, LabError | KubeError)
