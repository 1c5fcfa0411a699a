"""`croupier lab`: a Kubernetes cluster on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from croupier.cli import lab_named, terminal
from croupier.cli.lab_image import image
from croupier.cli.lab_install import install
from croupier.cli.lab_own_image import own_image

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from croupier.book.manager import Book
    from croupier.lab.lab import Lab

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

Name = Annotated[str, typer.Option("--name", help="Name of the lab; several labs can run at the same time.")]
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
    name: Name = DEFAULT,
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
    from croupier.lab import fleet, foreground
    from croupier.lab import nodes as simulated
    from croupier.lab.binaries import Sources
    from croupier.lab.lifecycle import Plan

    _check_name(name)
    _check_bin(bin_folder)
    if timeout <= 0:
        terminal.refuse(f"--timeout {timeout:g}: must be more than 0 seconds.")
    try:
        fleet_nodes = simulated.fleet(nodes, cards=gpus, named=node or [])
    except simulated.BadWishError as bad:
        terminal.refuse(str(bad))
    plan = Plan(
        name=name,
        sources=Sources(named=bin_folder),
        timeout=timeout,
        extra=fleet.settings(len(fleet_nodes)),
    )
    book = _book(croupier)
    _check_cards(cards, real_node)
    wish = foreground.Wish(
        plan, nodes=fleet_nodes, real_node=real_node, dealer=book, cards=cards, agents=agents, detach=detach
    )
    try:
        _run(
            foreground.up(wish, terminal.progress(), lambda lab, raised: _tell(lab, raised, held=not detach))
        )
    except foreground.InterruptedWhileStartingError:
        typer.echo(f"Interrupted; lab {name} was stopped.", err=True)
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def down(
    name: Name = DEFAULT,
    every: Annotated[bool, typer.Option("--all", help="Stop all labs.")] = False,
) -> None:
    """Stop a lab. Its logs are kept until the next `up`.

    \b
    croupier lab down
    croupier lab down --all
    """
    import os

    from croupier.lab import lifecycle, places

    _check_name(name)
    names = [record.name for record in lifecycle.existing(os.environ)] if every else [name]
    for lab_name in names:
        folder = places.labs() / lab_name
        if _run(lifecycle.down(folder, terminal.progress())):
            typer.echo(f"Lab {lab_name} is stopped. Its logs are in {folder / 'logs'} until the next `up`.")
        else:
            typer.echo(f"There is no lab {lab_name}.")
    if not names:
        typer.echo("There is no lab.")


@app.command()
def status(
    name: Name = DEFAULT,
    output: terminal.Output = "text",
) -> None:
    """Show the processes of a lab and where its logs are. Exit code 1 if it is not running."""
    import msgspec

    from croupier.lab import report
    from croupier.lab.record import State

    terminal.check_output(output)
    status = _run(report.look(_existing(name)))
    if output == "json":
        typer.echo(msgspec.json.format(msgspec.json.encode(status)).decode())
    else:
        typer.echo("\n".join(report.lines(status)))
    raise typer.Exit(0 if status.state is State.RUNNING else 1)


@app.command("list")
def list_labs(
    output: terminal.Output = "text",
) -> None:
    """List the labs of this user."""
    import os

    import msgspec

    from croupier.lab import lifecycle, record
    from croupier.lab.lab import Lab

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
    name: Name = DEFAULT,
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
def kubectl(context: typer.Context, name: Name = DEFAULT) -> None:
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
    from croupier.lab import binaries as programs
    from croupier.lab import pinned

    _check_bin(bin_folder)
    search = programs.search(pinned.HOME_OF, programs.Sources(named=bin_folder))
    for name in (*pinned.CONTROL_PLANE, *pinned.REAL_NODE, *pinned.INSTALLING):
        if found := search.found.get(name):
            typer.echo(f"{name:<24} {found.path} ({found.source})")
        else:
            typer.echo(f"{name:<24} not found; would be built from {pinned.HOME_OF[name].version}")
    for passed in search.passed_over:
        typer.echo(str(passed))


@app.command()
def build(real_node: RealNode = False, helm: Helm = False, bin_folder: Bin = None) -> None:
    """Build the missing binaries of a lab (minutes, once; can be interrupted)."""
    from croupier.lab import pinned, supplies
    from croupier.lab.binaries import Sources

    _check_bin(bin_folder)
    optional = (*(pinned.REAL_NODE if real_node else ()), *(pinned.INSTALLING if helm else ()))
    names = (*pinned.CONTROL_PLANE, *optional)
    available = _run(supplies.ensure(names, Sources(named=bin_folder), terminal.progress()))
    folders = sorted({str(path.parent) for path in available.binaries.values()})
    typer.echo(f"All {len(names)} binaries are available: {', '.join(folders)}")


@app.command("clean-cache")
def clean_cache() -> None:
    """Delete the binaries that were built; the next lab builds them again."""
    from croupier.lab import places, supplies

    folder = places.cache()
    _run(supplies.clear(folder, terminal.progress()))
    typer.echo(f"{folder} is empty.")


def _run(work: "Coroutine[Any, Any, T]") -> T:
    """Run `work`; an inaccessible folder becomes an error with advice for the user."""
    import asyncio

    from croupier.lab.errors import LabError

    try:
        return asyncio.run(work)
    except OSError as error:
        if not error.filename:
            raise
        advice = "choose other folders with CROUPIER_HOME and CROUPIER_CACHE"
        raise LabError(f"{error.filename} cannot be used ({error.strerror}): {advice}.") from error


def _tell(lab: "Lab", raised: bool, *, held: bool) -> None:
    nodes = [line.removeprefix("node/") for line in lab.kubectl("get", "nodes", "-o", "name").stdout.split()]
    more = f" and {len(nodes) - 6} more" if len(nodes) > 6 else ""
    typer.echo(f"Lab {lab.name} {'is running' if raised else 'was already running'}: {lab.server}")
    typer.echo(f"  nodes    {', '.join(nodes[:6]) + more or 'none'}")
    typer.echo(f"  try      croupier lab kubectl{_name_option(lab.name)} get nodes")
    typer.echo(f"  or       export KUBECONFIG={lab.kubeconfig}")
    typer.echo(f"  logs     {lab.logs}")
    stop = "Ctrl-C" if raised and held else f"croupier lab down{_name_option(lab.name)}"
    typer.echo(f"  stop     {stop}")


def _name_option(name: str) -> str:
    return "" if name == DEFAULT else f" --name {name}"


def _existing(name: str) -> "Lab":
    _check_name(name)
    return lab_named.existing(name, f"start one with `croupier lab up{_name_option(name)}`")


def _check_name(name: str) -> None:
    import re

    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?", name):
        terminal.refuse(f"--name {name!r}: use up to 42 lower-case letters, digits and '-'.")


def _book(named: str | None) -> "Book | None":
    from typing import get_args

    from croupier.book.manager import Book

    for book in get_args(Book):
        if named == book:
            return cast("Book", book)
    if named is not None:
        terminal.refuse(f"--croupier {named}: must be {' or '.join(get_args(Book))}.")
    return None


def _check_cards(cards: str | None, real_node: bool) -> None:
    if cards is None:
        return
    if not real_node:
        terminal.refuse("--cards: these are cards of the real node; add --real-node, or use --gpus.")
    lab_named.check_cards(cards)


def _check_bin(folder: Path | None) -> None:
    if folder is not None and not folder.is_dir():
        terminal.refuse(f"--bin {folder}: there is no such folder.")
