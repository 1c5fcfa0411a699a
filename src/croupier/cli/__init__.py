"""The `croupier` command; one module per verb.

Verbs import their dependencies inside the function, so that `--help` and completion stay fast. An error the
user can act on, such as an object that does not exist, is one sentence on stderr and exit code 1. Invalid
options exit with 2, Ctrl-C with 130. The verbs of the local cluster come from the package croupier_lab, where
that is installed.
"""

import gc
import importlib
import importlib.util
import sys

import typer

from croupier.cli import (
    audit,
    available,
    card_commands,
    cards,
    doctor,
    explain,
    extender,
    fallback,
    global_options,
    ledger,
    manager,
    market,
    mps,
    node,
    pools,
    reservations,
    scheduler_config,
    settings,
    terminal,
    ui,
    uninstall,
    usage,
    version,
    webhook,
    webhook_config,
    what_if,
)

app = typer.Typer(
    name="croupier",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(global_options.root)
app.add_typer(explain.app, name="explain", rich_help_panel="Allocation")
app.command("what-if", rich_help_panel="Allocation")(what_if.what_if)
app.command("fallback", rich_help_panel="Allocation")(fallback.fallback)
app.command("available", rich_help_panel="Allocation")(available.available)
app.command("reservations", rich_help_panel="Allocation")(reservations.reservations)
app.command("ledger", rich_help_panel="Allocation")(ledger.ledger)
app.command("usage", rich_help_panel="Allocation")(usage.usage)
app.command("audit", rich_help_panel="Allocation")(audit.audit)
app.command("cards", rich_help_panel="Cards and pools")(cards.cards)
app.add_typer(pools.app, name="pools", rich_help_panel="Cards and pools")
app.command("assign", rich_help_panel="Cards and pools")(card_commands.assign)
app.command("unassign", rich_help_panel="Cards and pools")(card_commands.unassign)
app.command("drain", rich_help_panel="Cards and pools")(card_commands.drain)
app.command("retire", rich_help_panel="Cards and pools")(card_commands.retire)
app.add_typer(market.app, name="market", rich_help_panel="CPU limits")
app.command("ui", rich_help_panel="Allocation")(ui.ui)
app.command("manager", rich_help_panel="Processes")(manager.manager)
app.command("extender", rich_help_panel="Processes")(extender.extender)
app.command("node", rich_help_panel="Processes")(node.node)
app.command("mps", rich_help_panel="Processes")(mps.mps)
app.command("webhook", rich_help_panel="Processes")(webhook.webhook)
app.command("webhook-config", rich_help_panel="Processes")(webhook_config.webhook_config)
app.command("scheduler-config", rich_help_panel="Processes")(scheduler_config.scheduler_config)
app.add_typer(settings.app, name="settings", rich_help_panel="Processes")
app.command("doctor", rich_help_panel="Processes")(doctor.doctor)
app.command("uninstall", rich_help_panel="Processes")(uninstall.uninstall)
app.command("version", rich_help_panel="About")(version.version)

INTERRUPTED = 130
LAB_PACKAGE = "croupier_lab"


def _lab_missing(context: typer.Context) -> None:
    """Run a local cluster. Needs the package croupier-lab, which is not installed here."""
    verb = context.info_name
    sentence = f"{verb} needs the package croupier-lab: install it with `pip install croupier-lab`."
    sys.stderr.write(f"croupier: {sentence}\n")
    raise typer.Exit(1)


def _add_lab_verbs() -> tuple[type[Exception], ...]:
    """Add the verbs of croupier_lab where it is installed; its errors whose message is for the user."""
    if importlib.util.find_spec(LAB_PACKAGE) is not None:
        lab = importlib.import_module(f"{LAB_PACKAGE}.cli")
        errors: tuple[type[Exception], ...] = lab.add_verbs(app, market.app)
        return errors
    for name in ("lab", "demo"):
        any_arguments = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(name, hidden=True, context_settings=any_arguments, add_help_option=False)(_lab_missing)
    return ()


LAB_ERRORS = _add_lab_verbs()


def main() -> None:
    gc.disable()  # it would search what is imported, again and again; a process enables it when it runs
    if terminal.forbids_styles():
        from typer import rich_utils

        rich_utils.COLOR_SYSTEM = None  # the help and usage errors, which typer prints by itself
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
    from croupier.kube.client.errors import KubeError

    return isinstance(error, (KubeError, *LAB_ERRORS))
