"""Liveness, readiness and metrics endpoints.

/livez fails if a restart would help; /readyz fails if the process should get no
work; /healthz is the old name of /livez. Each runs named checks and answers 200 if
all pass, else 503 with the results; `?verbose` always shows all results.
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
"""Returns None if the check passes, else the reason of the failure. Must not block."""


@dataclass(slots=True)
class HealthChecks:
    """The liveness and readiness checks of one process, by name."""

    live: dict[str, Check] = field(default_factory=dict)
    ready: dict[str, Check] = field(default_factory=dict)

    def not_ready(self) -> dict[str, str]:
        """The readiness checks that fail, with the reasons."""
        return _failed({name: _run(check) for name, check in self.ready.items()})


def app(health: HealthChecks, registry: CollectorRegistry) -> Starlette:
    async def live(request: Request) -> Response:
        return _respond(health.live, request)

    async def ready(request: Request) -> Response:
        return _respond(health.ready, request)

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


def _respond(checks: dict[str, Check], request: Request) -> Response:
    results = {name: _run(check) for name, check in checks.items()}
    failed = _failed(results)
    status = 503 if failed else 200
    if failed or "verbose" in request.query_params:
        lines = [f"[-] {name}: {why}" if why else f"[+] {name}" for name, why in results.items()]
        text = "\n".join([*lines, "failed" if failed else "ok"])
        return PlainTextResponse(text + "\n", status_code=status)
    return PlainTextResponse("ok\n")


def _failed(results: dict[str, str | None]) -> dict[str, str]:
    return {name: why for name, why in results.items() if why is not None}


def _run(check: Check) -> str | None:
    try:
        return check()
    except Exception as error:  # a broken check is a failed check
        return f"the check itself failed: {error!r}"
