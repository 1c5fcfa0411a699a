"""The health and metrics endpoints over real HTTP."""

import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry, Counter

from croupier.kube.serving import health, http_server
from croupier.kube.serving.health import HealthChecks
from croupier.kube.serving.http_server import Address, CannotListen, ListenOptions

LOOPBACK = ListenOptions(Address("127.0.0.1", 0))


@dataclass
class Server:
    health: HealthChecks
    registry: CollectorRegistry
    address: Address

    async def get(self, path: str) -> tuple[int, str]:
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.address}{path}") as answer:
            return answer.status, await answer.text()


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    checks, registry = HealthChecks(), CollectorRegistry()
    async with http_server.serve(health.app(checks, registry), LOOPBACK) as taken:
        yield Server(checks, registry, taken.address)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_without_failing_checks_the_process_is_healthy(server, path):
    assert await server.get(path) == (200, "ok\n")


async def test_a_failing_check_is_named_with_its_reason(server):
    server.health.ready["stores"] = lambda: "pods are not synced yet"
    server.health.ready["leader"] = lambda: None

    assert await server.get("/readyz") == (503, "[-] stores: pods are not synced yet\n[+] leader\nfailed\n")
    assert await server.get("/livez") == (200, "ok\n"), "not ready is no reason for a restart"


async def test_verbose_shows_all_checks(server):
    server.health.live["event loop"] = lambda: None

    assert await server.get("/healthz?verbose") == (200, "[+] event loop\nok\n")


async def test_a_check_that_raises_has_failed(server):
    server.health.live["odd"] = lambda: str(1 / 0)

    status, text = await server.get("/livez")
    assert status == 503
    assert "the check itself failed: ZeroDivisionError" in text


async def test_metrics_come_from_the_registry(server):
    Counter("croupier_test", "A test", registry=server.registry).inc(3)

    status, text = await server.get("/metrics")
    assert status == 200
    assert "croupier_test_total 3.0" in text
    assert "python_gc" not in text


async def test_the_server_does_not_handle_signals():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with http_server.serve(health.app(HealthChecks(), CollectorRegistry()), LOOPBACK):
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


async def test_a_port_in_use_is_explained(server):
    with pytest.raises(
        CannotListen, match=r"cannot listen on 127\.0\.0\.1:\d+: Address already in use; choose"
    ):
        async with http_server.serve(
            health.app(HealthChecks(), CollectorRegistry()), ListenOptions(server.address)
        ):
            pass


ADDRESSES = {
    ":8080": Address("0.0.0.0", 8080),  # noqa: S104  # only parsed here
    "127.0.0.1:0": Address("127.0.0.1", 0),
    "[::1]:9090": Address("::1", 9090),
}


@pytest.mark.parametrize(("text", "address"), ADDRESSES.items(), ids=ADDRESSES)
def test_addresses(text, address):
    assert http_server.parse(text) == address


@pytest.mark.parametrize("text", ["8080", "host:", "host:http", ":70000"])
def test_an_invalid_address_is_refused(text):
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        http_server.parse(text)
