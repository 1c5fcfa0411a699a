"""`croupier lab`: a Kubernetes cluster on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from croupier.cli import terminal
from croupier_lab.cli import arguments
from croupier_lab.cli.image import image
from croupier_lab.cli.install import install
from croupier_lab.cli.own_image import own_image

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from croupier.capacity.manager import CapacityManagerKind
    from croupier_lab.lab import Lab

app = typer.Typer(
    help="A Kubernetes cluster on this machine: etcd, API server, scheduler, simulated or real nodes.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.command("image")(image)
app.command("own-image")(own_image)
app.command("install")(install)

T = TypeVar("T")

INTERRUPTED = 130

Bin = Annotated[
    Path | None,
    typer.Option(
        "--bin",
        metavar="DIR",
        help="Folder with the binaries to use: kube-apiserver, etcd, ...",
        file_okay=False,
    ),
]
RealNode = Annotated[bool, typer.Option("--real-node", help="Also the binaries of a real node.")]
Helm = Annotated[bool, typer.Option("--helm", help="Also helm.")]
DEFAULT = "default"


@app.command()
def up(
    *,
    nodes: Annotated[int, typer.Option(metavar="N", help="Number of simulated nodes: node-1 to node-N.")] = 0,
    gpus: Annotated[
        str | None, typer.Option(metavar="MODEL:COUNT", help="Cards of each of these nodes, e.g. H100:8.")
    ] = None,
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=MODEL:COUNT", help="Add a simulated node with this name. Repeatable."),
    ] = None,
    name: arguments.Name = DEFAULT,
    detach: Annotated[bool, typer.Option("--detach", help="Return and keep the lab running.")] = False,
    real_node: Annotated[
        bool, typer.Option("--real-node", help="Join this machine as a node with a kubelet (requires root).")
    ] = False,
    croupier: Annotated[
        str | None,
        typer.Option(
            metavar="InMemory|CRD",
            help="Also run Croupier (extender, webhook) with this capacity manager.",
        ),
    ] = None,
    cards: Annotated[
        str | None,
        typer.Option(metavar="MODEL:COUNT", help="Simulated cards of the real node, mounted into its pods."),
    ] = None,
    agents: Annotated[
        bool,
        typer.Option("--agents", help="Also run an agent for the simulated nodes: repartitioning, faults."),
    ] = False,
    bin_folder: Bin = None,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Start-up timeout of the components.")
    ] = 60.0,
) -> None:
    """Start a lab and keep it running until Ctrl-C.

    Binaries come from --bin, $KUBEBUILDER_ASSETS, PATH or the cache; missing ones are built once.

    A running lab with this name is reused and new nodes are added; a crashed one is cleaned up first.

    \b
    croupier lab up --nodes 4 --gpus H100:8
    croupier lab up --node gpu-worker=A100-80GB:4 --node node-1=T4:1 --detach
    croupier lab up --nodes 2 --gpus H100:8 --croupier CRD
    croupier lab up --nodes 4 --gpus H100:8 --croupier CRD --agents
    sudo croupier lab up --real-node --name mine
    sudo croupier lab up --real-node --cards SIM-70GB:4 --croupier CRD
    """
    from croupier_lab import fleet, foreground, progress
    from croupier_lab import nodes as simulated
    from croupier_lab.binaries import BinarySources
    from croupier_lab.lifecycle import LabPlan

    _check_name(name)
    _check_bin(bin_folder)
    if timeout <= 0:
        terminal.usage_error(f"--timeout {timeout:g}: must be more than 0 seconds.")
    try:
        fleet_nodes = simulated.fleet(nodes, cards=gpus, named=node or [])
    except simulated.InvalidNodeOptionError as bad:
        terminal.usage_error(str(bad))
    plan = LabPlan(
        name=name,
        sources=BinarySources(named=bin_folder),
        timeout=timeout,
        extra=fleet.extra_arguments(len(fleet_nodes)),
    )
    terminal.check_choice("--croupier", croupier, terminal.CAPACITY_MANAGERS)
    _check_cards(cards, real_node)
    wish = foreground.LabSpec(
        plan,
        nodes=fleet_nodes,
        real_node=real_node,
        capacity_manager=cast("CapacityManagerKind | None", croupier),
        cards=cards,
        agents=agents,
        detach=detach,
    )
    try:
        _run(
            foreground.up(
                wish,
                progress.to_stderr(),
                lambda lab, raised: _print_summary(lab, raised, held=not detach, page=croupier is not None),
            )
        )
    except foreground.InterruptedWhileStartingError:
        typer.echo(f"Interrupted; lab {name} was stopped.", err=True)
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def down(
    name: arguments.Name = DEFAULT,
    every: Annotated[bool, typer.Option("--all", help="Stop all labs.")] = False,
) -> None:
    """Stop a lab. Its logs are kept until the next `up`.

    \b
    croupier lab down
    croupier lab down --all
    """
    import os

    from croupier_lab import lifecycle, progress, user_dirs

    _check_name(name)
    names = [record.name for record in lifecycle.existing(os.environ)] if every else [name]
    for lab_name in names:
        folder = user_dirs.labs() / lab_name
        if _run(lifecycle.down(folder, progress.to_stderr())):
            typer.echo(f"Lab {lab_name} is stopped. Its logs are in {folder / 'logs'} until the next `up`.")
        else:
            typer.echo(f"There is no lab {lab_name}.")
    if not names:
        typer.echo("There is no lab.")


@app.command()
def status(
    name: arguments.Name = DEFAULT,
    output: terminal.Output = "text",
) -> None:
    """Show the processes of a lab and where its logs are. Exit code 1 if it is not running."""
    import msgspec

    from croupier_lab import report
    from croupier_lab.record import LabState

    terminal.check_output(output)
    status = _run(report.collect(_existing(name)))
    if output == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(status)).decode())
    else:
        typer.echo("\n".join(report.lines(status)))
    raise typer.Exit(0 if status.state is LabState.RUNNING else 1)


@app.command("list")
def list_labs(
    output: terminal.Output = "text",
) -> None:
    """List the labs of this user."""
    import os

    import msgspec

    from croupier_lab import lifecycle, record
    from croupier_lab.lab import Lab

    terminal.check_output(output)
    labs = [Lab(entry) for entry in lifecycle.existing(os.environ)]
    rows = [{"name": lab.name, "state": record.state(lab.record).value, "server": lab.server} for lab in labs]
    if output == "json":
        typer.echo(msgspec.json.encode(rows).decode())
        return
    for row in rows:
        typer.echo(f"{row['name']:<20} {row['state']:<10} {row['server']}")
    if not rows:
        typer.echo("There is no lab. Start one with `croupier lab up`.")


@app.command()
def kubeconfig(
    name: arguments.Name = DEFAULT,
    raw: Annotated[bool, typer.Option("--raw", help="Print the content of the file.")] = False,
) -> None:
    """Print the path of a lab's kubeconfig.

    \b
    export KUBECONFIG=$(croupier lab kubeconfig)
    """
    path = _existing(name).kubeconfig
    typer.echo(path.read_text() if raw else str(path), nl=not raw)


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    }
)
def kubectl(context: typer.Context, name: arguments.Name = DEFAULT) -> None:
    """Run kubectl against a lab.

    \b
    croupier lab kubectl get nodes
    croupier lab kubectl --name mine get pods -A
    """
    import os

    command = _existing(name).cluster.command(*context.args)
    os.execv(command[0], command)  # noqa: S606 (arguments are a list; there is no shell)


@app.command()
def binaries(bin_folder: Bin = None) -> None:
    """Show which binaries would be used, and why others are rejected."""
    from croupier_lab import binaries as programs
    from croupier_lab import pinned

    _check_bin(bin_folder)
    search = programs.search(pinned.MODULE_OF, programs.BinarySources(named=bin_folder))
    for name in (*pinned.CONTROL_PLANE_PROGRAMS, *pinned.REAL_NODE_PROGRAMS, *pinned.HELM_PROGRAMS):
        if found := search.found.get(name):
            typer.echo(f"{name:<24} {found.path} ({found.source})")
        else:
            typer.echo(f"{name:<24} not found; would be built from {pinned.MODULE_OF[name].version}")
    for passed in search.rejected:
        typer.echo(str(passed))


@app.command()
def build(real_node: RealNode = False, helm: Helm = False, bin_folder: Bin = None) -> None:
    """Build the missing binaries of a lab (minutes, once; can be interrupted)."""
    from croupier_lab import pinned, progress, provisioning
    from croupier_lab.binaries import BinarySources

    _check_bin(bin_folder)
    optional = (*(pinned.REAL_NODE_PROGRAMS if real_node else ()), *(pinned.HELM_PROGRAMS if helm else ()))
    names = (*pinned.CONTROL_PLANE_PROGRAMS, *optional)
    available = _run(provisioning.ensure(names, BinarySources(named=bin_folder), progress.to_stderr()))
    folders = sorted({str(path.parent) for path in available.binaries.values()})
    typer.echo(f"All {len(names)} binaries are available: {', '.join(folders)}")


@app.command("clean-cache")
def clean_cache(*, yes: terminal.Yes = False) -> None:
    """Delete the binaries that were built; the next lab builds them again, which takes about ten minutes.

    Asks first; without a terminal it needs --yes.

    \b
    croupier lab clean-cache
    croupier lab clean-cache --yes            without asking, for scripts
    """
    from croupier_lab import progress, provisioning, user_dirs

    folder = user_dirs.cache()
    if not yes:
        terminal.require_terminal(f"clean-cache would delete everything in {folder}")
        typer.echo(f"Will be deleted: everything in {folder}")
        typer.confirm("Continue?", abort=True)
    _run(provisioning.clear(folder, progress.to_stderr()))
    typer.echo(f"{folder} is empty.")


def _run(work: "Coroutine[Any, Any, T]") -> T:
    """Run `work`; an inaccessible folder becomes an error with advice for the user."""
    import asyncio

    from croupier_lab.errors import LabError

    try:
        return asyncio.run(work)
    except OSError as error:
        if not error.filename:
            raise
        advice = "choose other folders with CROUPIER_HOME and CROUPIER_CACHE"
        raise LabError(f"{error.filename} cannot be used ({error.strerror}): {advice}.") from error


def _print_summary(lab: "Lab", raised: bool, *, held: bool, page: bool) -> None:
    nodes = [line.removeprefix("node/") for line in lab.kubectl("get", "nodes", "-o", "name").stdout.split()]
    more = f" and {len(nodes) - 6} more" if len(nodes) > 6 else ""
    typer.echo(f"Lab {lab.name} {'is running' if raised else 'was already running'}: {lab.server}")
    typer.echo(f"  nodes    {', '.join(nodes[:6]) + more or 'none'}")
    typer.echo(f"  try      croupier lab kubectl{_name_option(lab.name)} get nodes")
    typer.echo(f"  or       export KUBECONFIG={lab.kubeconfig}")
    if page:
        typer.echo(f"  page     croupier ui --kubeconfig {lab.kubeconfig}")
    typer.echo(f"  logs     {lab.logs}")
    stop = "Ctrl-C" if raised and held else f"croupier lab down{_name_option(lab.name)}"
    typer.echo(f"  stop     {stop}")


def _name_option(name: str) -> str:
    return "" if name == DEFAULT else f" --name {name}"


def _existing(name: str) -> "Lab":
    _check_name(name)
    return arguments.find_lab(name, f"start one with `croupier lab up{_name_option(name)}`")


def _check_name(name: str) -> None:
    import re

    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?", name):
        terminal.usage_error(f"--name {name!r}: use up to 42 lower-case letters, digits and '-'.")


def _check_cards(cards: str | None, real_node: bool) -> None:
    if cards is None:
        return
    if not real_node:
        terminal.usage_error("--cards: these are cards of the real node; add --real-node, or use --gpus.")
    arguments.check_cards(cards)


def _check_bin(folder: Path | None) -> None:
    if folder is not None and not folder.is_dir():
        terminal.usage_error(f"--bin {folder}: there is no such folder.")
