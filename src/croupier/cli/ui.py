"""`croupier ui`: the web page of the cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, terminal
from croupier.cli.cluster import Context, Kubeconfig
from croupier.cli.process_options import NAMESPACE_VARIABLE, LogLevel
from croupier.cli.terminal import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from croupier.kube.serving.http_server import ListenOptions
    from croupier.wiring.process_context import ProcessOptions

MODES = ("local", "bearer", "token", "headers")
ACTIONS = ("cards", "pools", "reservations")
IN_CLUSTER = ":8642"


def ui(
    *,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            show_default="127.0.0.1:8642 or a free port; :8642 in other modes",
            help="Address of the page.",
        ),
    ] = None,
    mode: Annotated[
        str, typer.Option(metavar="|".join(MODES), help="Who the viewer is; docs/ui.md explains the modes.")
    ] = "local",
    actions: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP,...",
            show_default="all in mode local, none in other modes",
            help="What the page may change, as the viewer: cards, pools, reservations. Empty: nothing.",
        ),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Serving certificate.")] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Key of the serving certificate.")
    ] = None,
    client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Mode headers: CA of the proxy's client certificate.")
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="Serve plain HTTP to a proxy that ends TLS.")
    ] = False,
    session_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Mode token: 32 random bytes, the same for all replicas."),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the history in files of this folder, for up to 30 days."),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open the browser.")] = False,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NS",
            envvar=NAMESPACE_VARIABLE,
            show_default=f"mode local: {cluster.FOUND}; otherwise {DEFAULT_NAMESPACE}",
            help="Namespace of the installation.",
        ),
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            show_default="a free port on loopback; :8080 in other modes",
            help="Address for /livez, /readyz and /metrics.",
        ),
    ] = None,
    log_level: LogLevel = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Serve the web page of the cluster: cards and their holders, waiting pods, pools, history.

    In mode local it uses your kubeconfig, listens on loopback and opens your browser: you see and change what
    kubectl would let you. The other modes are for a page that several people use.

    \b
    croupier ui
    croupier ui --context production --no-open
    croupier ui --actions ''                   show only, change nothing
    croupier ui --history ~/croupier-history   keep the history across restarts
    """
    from functools import partial

    from croupier.cli import process_options
    from croupier.ops import doctor
    from croupier.wiring import ui as wired

    is_local = mode == "local"
    terminal.check_choice("--mode", mode, MODES)
    address = _listen(listen or ("127.0.0.1:8642" if is_local else IN_CLUSTER), tls_cert, tls_key, client_ca)
    if not (is_local or address.tls or behind_proxy or _is_loopback(address)):
        terminal.usage_error(
            f"mode {mode} would serve plain HTTP on {address.address}: set --tls-cert and --tls-key, or "
            "--behind-proxy if a proxy in front of the page ends TLS."
        )
    page = wired.PageOptions(
        mode=mode,  # type: ignore[arg-type]  # one of MODES
        listen=address,
        any_port=is_local and listen is None,
        actions=_actions(actions, ACTIONS if is_local else ()),
        session_key=session_key,
        history=history,
        answer_timeout=cluster.answer_timeout(),
        opens_browser=is_local and not no_open and _has_display(),
    )
    options = process_options.parse(
        namespace=namespace or DEFAULT_NAMESPACE,
        health=health or ("127.0.0.1:0" if is_local else ":8080"),
        cluster=(kubeconfig, context),
        origin=None,
        log_level=log_level,
    )

    async def work() -> int:
        found = options if namespace or not is_local else await _in_its_namespace(options)
        checks = partial(doctor.run_all, namespace=found.namespace)
        return await wired.work(found, page, checks, typer.echo)

    if not is_local:
        process_options.start(work, log_level)
    target = cluster.ClusterTarget(kubeconfig, context)
    process_options.start(lambda: _at_terminal(work(), target), log_level or "warning")


async def _in_its_namespace(options: "ProcessOptions") -> "ProcessOptions":
    """With the namespace of the installation. The page itself reports a kubeconfig that cannot be read."""
    from dataclasses import replace

    from croupier.kube.client import api_client, config
    from croupier.kube.client.errors import ApiError, KubeError
    from croupier.ops.installation import find_namespace

    try:
        chosen = config.load(options.kubeconfig, options.context)
    except KubeError:
        return options
    async with api_client.connect(chosen) as api:
        try:
            await api.api_groups(timeout=cluster.answer_timeout())  # or a person waits for the retries
        except ApiError:
            return options
        return replace(options, namespace=await find_namespace(api))


async def _at_terminal(work: "Coroutine[Any, Any, int]", target: cluster.ClusterTarget) -> int:
    """A person reads the terminal: an error that prevents the start is a sentence, not a line of the log."""
    from croupier.kube.client.errors import KubeError

    try:
        return await work
    except KubeError as error:
        typer.echo(f"croupier: {cluster.explain(error, target)}", err=True)
        return 1


def _listen(
    listen: str, certificate: Path | None, key: Path | None, client_ca: Path | None
) -> "ListenOptions":
    from croupier.kube.serving import http_server
    from croupier.kube.serving.http_server import TLS, ListenOptions

    try:
        address = http_server.parse(listen)
    except ValueError as bad:
        terminal.usage_error(f"--listen: {bad}.")
    if certificate and key:
        return ListenOptions(address, TLS(certificate, key, client_ca))
    if certificate or key or client_ca:
        terminal.usage_error("--tls-cert and --tls-key must be set together, and --client-ca needs both.")
    return ListenOptions(address)


def _is_loopback(listen: "ListenOptions") -> bool:
    from croupier.kube.serving import http_server

    return http_server.is_loopback(listen.address.host)


def _actions(text: str | None, default: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return default
    named = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in named:
        terminal.check_choice("--actions", name, ACTIONS)
    return named


def _has_display() -> bool:
    """Without a display the browser would be a text browser in this terminal."""
    import os
    import sys

    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
