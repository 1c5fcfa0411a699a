"""Tells the kubelet whether we live and are ready, and Prometheus how we are doing.

/livez says whether a restart would help; /readyz whether we should get work;
/healthz is the old name of /livez. Each is the sum of named checks: 200 when
all pass, 503 and the names of those that do not; `?verbose` shows all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

Check = Callable[[], str | None]
"""None when all is well, else the sentence that says what is not. Must not block."""


@dataclass(slots=True)
class Health:
    """The checks of one process; names are what `?verbose` prints."""

    live: dict[str, Check] = field(default_factory=dict)
    ready: dict[str, Check] = field(default_factory=dict)


def app(health: Health, registry: CollectorRegistry) -> Starlette:
    async def live(request: Request) -> Response:
        return _answer(health.live, request)

    async def ready(request: Request) -> Response:
        return _answer(health.ready, request)

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": content_type})

    return Starlette(
        routes=[
            Route("/healthz", live),
            Route("/livez", live),
            Route("/readyz", ready),
            Route("/metrics", metrics),
        ]
    )


def _answer(checks: dict[str, Check], request: Request) -> Response:
    results = {name: _run(check) for name, check in checks.items()}
    failed = {name: why for name, why in results.items() if why is not None}
    status = 503 if failed else 200
    if failed or "verbose" in request.query_params:
        lines = [f"[-] {name}: {why}" if why else f"[+] {name}" for name, why in results.items()]
        text = "\n".join([*lines, "failed" if failed else "ok"])
        return PlainTextResponse(text + "\n", status_code=status)
    return PlainTextResponse("ok\n")


def _run(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:  # a broken check is a failed check
        return f"the check itself failed: {error!r}"
