"""Invalid requests get an answer, and a stopping server finishes open requests."""

import asyncio
import contextlib
import io
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry, generate_latest

from croupier.admission import certificates, server
from croupier.admission.certificate_rotation import ROTATION_RULES, RotationStep
from croupier.admission.certificates import Keyring
from croupier.admission.metrics import MAX_PAIRS, AdmissionMetrics
from croupier.admission.review import AdmissionRequest, AdmissionVerdict
from croupier.admission.server import WebhookServer
from croupier.core.fallbacks.fallback import PodEvent
from croupier.kube.serving import post_app
from croupier.kube.serving.http_server import Address, BadCertificate, ListenOptions, RotatingCertificate
from tests.admission.test_review import body, said
from tests.admission.webhook_env import StampMutator, free_port

JSON = {"Content-Type": "application/json"}


def ring(*hosts: str) -> Keyring:
    return certificates.after_step(
        RotationStep.BEGIN, None, datetime.now(UTC), hosts=hosts or ("127.0.0.1",), rules=ROTATION_RULES
    )


def trusting(keys: Keyring) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=keys.bundle.decode())


class RecordingMetrics(AdmissionMetrics):
    """Records metrics and Events."""

    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.outcomes: list[tuple[str, str]] = []
        self.pairs: list[tuple[str, str]] = []
        self.notes: list[tuple[PodEvent, ...]] = []

    def answered(self, webhook: str, outcome: str, seconds: float) -> None:
        self.outcomes.append((webhook, outcome))

    def refused(self, webhook: str, outcome: str) -> None:
        self.outcomes.append((webhook, outcome))

    def rewritten(self, before: str, after: str) -> None:
        self.pairs.append((before, after))

    def expect(self, request: AdmissionRequest, notes: tuple[PodEvent, ...]) -> None:
        self.notes.append(notes)


@asynccontextmanager
async def opened(
    mutator: server.AdmissionDecider, recorded: RecordingMetrics | None = None
) -> AsyncIterator["Client"]:
    keys, served = ring(), RotatingCertificate()
    served.replace(keys.certificate, keys.key)
    noted = recorded or RecordingMetrics()
    hook = WebhookServer(
        mutator, ListenOptions(Address("127.0.0.1", 0), served), metrics=noted, on_events=noted.expect
    )
    connector = aiohttp.TCPConnector(ssl=trusting(keys))
    async with hook.serving() as taken, aiohttp.ClientSession(connector=connector) as web:
        yield Client(web, taken, keys)


class Client:
    def __init__(self, web: aiohttp.ClientSession, taken: ListenOptions, keys: Keyring) -> None:
        self.web, self.url, self.port, self.keys = web, taken.url, taken.address.port, keys

    async def post(self, path: str = "/mutate", data: object = None) -> tuple[int, bytes]:
        asked = body() if data is None else data
        async with self.web.post(self.url + path, data=asked, headers=JSON) as answer:
            content = await answer.read()
            assert int(answer.headers["Content-Length"]) == len(content)
            return answer.status, content


@pytest_asyncio.fixture
async def client() -> AsyncIterator[Client]:
    async with opened(StampMutator()) as ready:
        yield ready


async def test_a_review_is_answered(client):
    status, content = await client.post()

    assert status == 200
    assert said(content)["uid"] == "u-1"
    assert "patch" in said(content)


async def test_validate_refuses_or_allows_without_changes(client):
    bad = body(object={"metadata": {"name": "p", "annotations": {"gpu.mps.io/bad": ""}}})

    assert said((await client.post("/validate"))[1]) == {"uid": "u-1", "allowed": True}
    assert said((await client.post("/validate", bad))[1])["allowed"] is False


async def test_unrelated_requests_are_allowed(client):
    update = body(operation="UPDATE")

    assert said((await client.post(data=update))[1]) == {"uid": "u-1", "allowed": True}


HUGE = io.BytesIO(b" " * (server.MAX_BODY + 1))
ODD = {
    "another type": ("POST", "/mutate", {"data": b"{}", "headers": {"Content-Type": "text/plain"}}, 415),
    "no type": ("POST", "/mutate", {"data": b"{}", "headers": {"Content-Type": ""}}, 415),
    "another method": ("GET", "/mutate", {}, 405),
    "another path": ("POST", "/", {"data": b"{}", "headers": JSON}, 404),
    "a huge body": ("POST", "/validate", {"data": HUGE, "headers": JSON}, 413),
    "no review": ("POST", "/mutate", {"data": b"{}", "headers": JSON}, 400),
    "an older version": (
        "POST",
        "/mutate",
        {"data": body().replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"), "headers": JSON},
        400,
    ),
    "a type with a charset": (
        "POST",
        "/mutate",
        {"data": body(), "headers": {"Content-Type": "Application/JSON; charset=utf-8"}},
        200,
    ),
}


@pytest.mark.parametrize(("method", "path", "how", "status"), ODD.values(), ids=ODD)
async def test_invalid_http_requests_get_an_error_status(client, method, path, how, status):
    async with client.web.request(method, client.url + path, **how) as answer:
        assert answer.status == status
        assert "Content-Length" in answer.headers
    assert (await client.post())[0] == 200


async def test_a_huge_body_without_a_length_is_refused(client):
    async def flood() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b" " * 1024 * 1024

    with contextlib.suppress(aiohttp.ClientError):  # the server closed the connection early
        assert (await client.post(data=flood()))[0] == 413
    assert (await client.post())[0] == 200


async def test_a_review_in_chunks_is_read_completely(client):
    async def pieces() -> AsyncIterator[bytes]:
        whole = body()
        for start in range(0, len(whole), 50):
            yield whole[start : start + 50]

    assert "patch" in said((await client.post(data=pieces()))[1])


async def test_a_slow_body_times_out_and_does_not_delay_others(client, monkeypatch):
    monkeypatch.setattr(post_app, "BODY_TIMEOUT", 0.2)
    head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port, ssl=trusting(client.keys))
    writer.write(head)

    assert (await client.post())[0] == 200
    assert b"408" in await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    await writer.wait_closed()


async def test_a_client_that_disconnects_is_dropped(client):
    head = b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
    _, writer = await asyncio.open_connection("127.0.0.1", client.port, ssl=trusting(client.keys))
    writer.write(head)
    await writer.drain()
    writer.transport.abort()

    assert (await client.post())[0] == 200


async def test_an_exception_fails_one_call_only():
    class Trap:
        calls = 0

        def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
            self.calls += 1
            if self.calls == 1:
                raise ZeroDivisionError
            return AdmissionVerdict()

    recorded = RecordingMetrics()
    async with opened(Trap(), recorded) as client:
        assert (await client.post())[0] == 500
        assert (await client.post())[0] == 200
    assert recorded.outcomes == [("mutate", "crashed"), ("mutate", "unchanged")]


async def test_connections_are_reused(client):
    for _ in range(3):
        await client.post()

    assert len(client.web.connector._conns) == 1


class Rewriter:
    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        return AdmissionVerdict(
            events=(PodEvent("GPUFallback", "told"),), fallbacks=(("2g.20gb", "1g.10gb"),)
        )


async def test_a_rewrite_is_counted_and_recorded_unless_it_is_a_dry_run():
    recorded = RecordingMetrics()
    async with opened(Rewriter(), recorded) as client:
        await client.post(data=body(dryRun=True))
        assert (recorded.pairs, recorded.notes) == ([], [])
        await client.post()

    assert recorded.pairs == [("2g.20gb", "1g.10gb")]
    assert recorded.notes == [(PodEvent("GPUFallback", "told"),)]


async def test_validation_records_no_second_event():
    recorded = RecordingMetrics()
    async with opened(Rewriter(), recorded) as client:
        assert (await client.post("/validate"))[0] == 200

    assert (recorded.pairs, recorded.notes) == ([], [])


async def test_a_stopping_server_answers_and_closes_connections():
    keys, served, stop, listening = ring(), RotatingCertificate(), asyncio.Event(), asyncio.Event()
    served.replace(keys.certificate, keys.key)
    listen = ListenOptions(Address("127.0.0.1", free_port()), served)
    hook = WebhookServer(StampMutator(), listen, drain=1.0)
    assert hook.not_ready() == "not answering yet"
    running = asyncio.create_task(hook.run(stop, listening=listening.set))
    await listening.wait()
    assert hook.not_ready() is None

    async def hangs_up() -> bool:
        async with web.post(f"{listen.url}/mutate", data=body(), headers=JSON) as answer:
            assert answer.status == 200
            return answer.headers.get("Connection") == "close"

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting(keys))) as web:
        assert not await hangs_up()
        stop.set()
        await asyncio.sleep(0)  # let the server run
        assert await hangs_up()
        await running
        with pytest.raises(aiohttp.ClientError):
            await hangs_up()


class TestCertificate:
    async def test_a_new_certificate_is_served_at_once_and_open_connections_stay(self):
        old, new, served = ring(), ring(), RotatingCertificate()
        served.replace(old.certificate, old.key)
        async with WebhookServer(
            StampMutator(), ListenOptions(Address("127.0.0.1", 0), served)
        ).serving() as taken:
            port = taken.address.port
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting(old))
            served.replace(new.certificate, new.key)
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.open_connection("127.0.0.1", port, ssl=trusting(old))
            _, other = await asyncio.open_connection("127.0.0.1", port, ssl=trusting(new))
            sent = body()
            writer.write(
                b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(sent), sent)
            )
            assert b"200" in await asyncio.wait_for(reader.readline(), 10)
            for one in (writer, other):
                one.close()
                await one.wait_closed()

    async def test_a_certificate_that_does_not_match_its_key_is_not_served(self):
        good, other, served = ring(), ring(), RotatingCertificate()
        served.replace(good.certificate, good.key)
        for certificate, key in ((other.certificate, good.key), (b"no", b"pem")):
            with pytest.raises(BadCertificate, match="cannot be loaded"):
                served.replace(certificate, key)
        async with WebhookServer(
            StampMutator(), ListenOptions(Address("127.0.0.1", 0), served)
        ).serving() as taken:
            _, writer = await asyncio.open_connection("127.0.0.1", taken.address.port, ssl=trusting(good))
            writer.close()
            await writer.wait_closed()


def test_the_metrics_have_the_documented_names():
    registry = CollectorRegistry()
    metrics = AdmissionMetrics(registry)
    metrics.answered("mutate", "changed", 0.002)
    metrics.refused("none", "refused with 404")
    metrics.serving_until(datetime(2030, 1, 1, tzinfo=UTC))
    for index in range(MAX_PAIRS + 20):
        metrics.rewritten(f"{index}g.10gb", "gpu")

    shown = generate_latest(registry).decode()
    assert 'croupier_admission_reviews_total{outcome="changed",webhook="mutate"} 1.0' in shown
    assert 'croupier_admission_review_duration_seconds_bucket{le="0.0025",webhook="mutate"} 1.0' in shown
    assert 'croupier_fallbacks_total{from="0g.10gb",to="gpu"} 1.0' in shown
    assert 'croupier_fallbacks_total{from="other",to="other"} 20.0' in shown
    assert "croupier_webhook_certificate_expiry_timestamp_seconds 1.893456e+09" in shown
