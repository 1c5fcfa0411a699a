"""Client authentication, and requests that no scheduler would send."""

import asyncio
import io
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry, generate_latest

from croupier.extender import server
from croupier.extender.metrics import ExtenderMetrics
from croupier.extender.server import Extender, ExtenderDependencies
from croupier.kube.client import api_client
from croupier.kube.client.config import Config
from croupier.kube.serving import http_server, post_app
from croupier.kube.serving.http_server import TLS, Address, BadCertificate, CannotListen, ListenOptions
from croupier_lab import certificates
from croupier_lab.certificates import CertificateSubject
from tests.extender.builders import in_memory_manager, ledger
from tests.extender.test_protocol import GARBAGE, METADATA, POD

LOOPBACK = Address("127.0.0.1", 0)
JSON = {"Content-Type": "application/json"}


async def extender(listen: ListenOptions, dependencies: ExtenderDependencies | None = None) -> Extender:
    """An extender with one node and an unreachable API server."""
    async with api_client.connect(Config(server="https://127.0.0.1:9")) as nowhere:
        return Extender(
            await in_memory_manager(ledger("a"), ledger("b")),
            nowhere,
            listen=listen,
            dependencies=dependencies,
        )


@pytest_asyncio.fixture
async def url() -> AsyncIterator[str]:
    async with (await extender(ListenOptions(LOOPBACK))).serving() as taken:
        yield taken.url


@pytest_asyncio.fixture
async def web() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def question(*nodes: str, ratio: str = "50") -> dict[str, object]:
    limits = {"gpu.mps.io/percent": ratio.removesuffix("%")}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    annotated = {
        **POD,
        "metadata": {**METADATA, "annotations": {"gpu.mps.io/ratio": ratio}},
        "spec": spec,
    }
    return {"Pod": annotated, "NodeNames": list(nodes)}


async def test_filter_answers_over_http(url, web):
    async with web.post(f"{url}/filter", json=question("b", "a")) as answer:
        assert answer.status == 200
        assert int(answer.headers["Content-Length"]) > 0
        assert (await answer.json())["NodeNames"] == ["a"]


async def test_unknown_nodes_are_refused_by_name(url, web):
    async with web.post(f"{url}/filter", json=question("stranger", "\u0000", "x" * 5000)) as answer:
        said = await answer.json()

    assert said["NodeNames"] == []
    assert set(said["FailedAndUnresolvableNodes"].values()) == {"the node has no cards in the ledger"}


async def test_percent_signs_survive_the_formatting_of_events(url, web):
    async with web.post(f"{url}/filter", json=question("a", ratio="50%")) as answer:
        said = await answer.json()

    assert '"50%%"' in said["FailedAndUnresolvableNodes"]["a"]


@pytest.mark.parametrize("verb", ["filter", "bind"])
@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE)
async def test_invalid_requests_get_a_message(url, web, verb, body):
    async with web.post(f"{url}/{verb}", data=body, headers=JSON) as answer:
        assert answer.status == 200
        assert "request" in (await answer.json())["Error"]


HUGE = io.BytesIO(b" " * (server.MAX_BODY + 1))
ODD = {
    "another type": ("POST", "/filter", {"data": b"{}", "headers": {"Content-Type": "text/plain"}}, 415),
    "no type": ("POST", "/filter", {"data": b"{}", "headers": {"Content-Type": ""}}, 415),
    "another method": ("GET", "/filter", {}, 405),
    "another path": ("POST", "/preempt", {"data": b"{}", "headers": JSON}, 404),
    "a huge body": ("POST", "/filter", {"data": HUGE, "headers": JSON}, 413),
}


@pytest.mark.parametrize(("method", "path", "how", "status"), ODD.values(), ids=ODD)
async def test_unsupported_requests_get_a_status(url, web, method, path, how, status):
    async with web.request(method, url + path, **how) as answer:
        assert answer.status == status


async def test_a_huge_body_without_a_length_is_refused(url, web):
    async def flood() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b" " * 1024 * 1024

    try:
        async with web.post(f"{url}/filter", data=flood(), headers=JSON) as answer:
            assert answer.status == 413
    except aiohttp.ClientError:
        pass  # the server closed the connection before everything was sent
    async with web.post(f"{url}/filter", json=question("a")) as answer:
        assert answer.status == 200


async def test_a_slow_body_times_out_and_does_not_delay_others(url, web, monkeypatch):
    monkeypatch.setattr(post_app, "BODY_TIMEOUT", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(
        b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    )
    async with web.post(f"{url}/filter", json=question("a")) as answer:
        assert answer.status == 200

    assert b"408" in await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    await writer.wait_closed()


async def test_requests_are_refused_before_the_ledgers_are_loaded(web):
    around = ExtenderDependencies(ready=lambda: False)
    async with (await extender(ListenOptions(LOOPBACK), around)).serving() as taken:
        for verb, body in (
            ("filter", question("a")),
            ("bind", {"PodName": "p", "PodNamespace": "team", "PodUID": "u", "Node": "a"}),
        ):
            async with web.post(f"{taken.url}/{verb}", json=body) as answer:
                assert (await answer.json())["Error"] == "the ledger is not loaded yet"


async def test_outcomes_are_counted(web):
    registry = CollectorRegistry()
    around = ExtenderDependencies(metrics=ExtenderMetrics(registry))
    async with (await extender(ListenOptions(LOOPBACK), around)).serving() as taken:
        for nodes in (("a",), ("stranger",)):
            async with web.post(f"{taken.url}/filter", json=question(*nodes)) as answer:
                await answer.read()

    answers = (sample for family in registry.collect() for sample in family.samples)
    assert {
        (sample.labels["verb"], sample.labels["outcome"]): sample.value
        for sample in answers
        if sample.name == "croupier_extender_requests_total"
    } == {("filter", "chosen"): 1, ("filter", "nowhere"): 1}


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::"])  # noqa: S104  # the test expects a refusal
async def test_tls_is_required_except_on_loopback(host):
    with pytest.raises(CannotListen, match=r"does not listen on .* without TLS"):
        async with (await extender(ListenOptions(Address(host, 0)))).serving():
            pass


async def test_a_used_port_is_reported(url):
    taken = Address("127.0.0.1", int(url.rpartition(":")[2]))

    with pytest.raises(CannotListen, match="choose another address or port"):
        async with (await extender(ListenOptions(taken))).serving():
            pass


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, now = tmp_path_factory.mktemp("pki"), datetime.now(UTC)
    certificates.create(folder, now=now)
    certificates.issue(folder, CertificateSubject("extender", "extender", hosts=("127.0.0.1",)), now=now)
    return folder


class TestTLS:
    @pytest_asyncio.fixture
    async def taken(self, pki: Path) -> AsyncIterator[ListenOptions]:
        async with (await extender(ListenOptions(LOOPBACK, _tls(pki)))).serving() as listen:
            yield listen

    async def test_a_client_with_the_right_certificate_is_accepted(self, pki, taken, web):
        context = _context(pki, "kube-scheduler")
        async with web.post(f"{taken.url}/filter", json=question("a"), ssl=context) as answer:
            assert (await answer.json())["NodeNames"] == ["a"]

    @pytest.mark.parametrize("who", ["etcd-client", None], ids=["another CA", "none"])
    async def test_other_clients_are_refused(self, pki, taken, web, who):
        with pytest.raises(aiohttp.ClientError):
            async with web.post(f"{taken.url}/filter", json=question("a"), ssl=_context(pki, who)) as answer:
                await answer.read()

    async def test_plain_http_is_refused(self, taken, web):
        with pytest.raises(aiohttp.ClientError):
            async with web.post(f"http://{taken.address}/filter", json=question("a")) as answer:
                await answer.read()

    async def test_a_new_certificate_is_loaded(self, pki, web, monkeypatch):
        monkeypatch.setattr(http_server, "CERTIFICATE_POLL", 0.05)
        async with (await extender(ListenOptions(LOOPBACK, _tls(pki)))).serving() as taken:
            old = await _serial(taken.address.port, pki)
            certificates.issue(
                pki, CertificateSubject("extender", "extender", hosts=("127.0.0.1",)), now=datetime.now(UTC)
            )
            deadline = asyncio.get_running_loop().time() + 20
            while await _serial(taken.address.port, pki) == old:
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.05)

    async def test_unusable_files_are_reported(self, tmp_path):
        files = TLS(tmp_path / "no.crt", tmp_path / "no.key", tmp_path / "no-ca.crt")

        with pytest.raises(BadCertificate, match=r"no\.crt"):
            async with (await extender(ListenOptions(LOOPBACK, files))).serving():
                pass


def _tls(pki: Path) -> TLS:
    return TLS(pki / "extender.crt", pki / "extender.key", pki / "ca.crt")


def _context(pki: Path, who: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=pki / "ca.crt")
    if who is not None:
        context.load_cert_chain(pki / f"{who}.crt", pki / f"{who}.key")
    return context


async def _serial(port: int, pki: Path) -> str:
    context = _context(pki, "kube-scheduler")
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    serial: str = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    await writer.wait_closed()
    return serial


def test_metric_names():
    registry = CollectorRegistry()
    ExtenderMetrics(registry).answered("filter", "chosen", 0.002)

    shown = generate_latest(registry).decode()
    assert 'croupier_extender_requests_total{outcome="chosen",verb="filter"} 1.0' in shown
    assert 'croupier_extender_request_duration_seconds_bucket{le="0.0025",verb="filter"} 1.0' in shown
