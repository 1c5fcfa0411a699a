"""The limits of a server: connections per peer and in total, headers in time and size, names of clients."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from croupier.kube.controller.rate_limit import RateLimit
from croupier.kube.serving import certificates, connections, http_server
from croupier.kube.serving.certificates import SignedCertificate
from croupier.kube.serving.fair_slots import SlotLimits
from croupier.kube.serving.http_server import Address, ListenOptions, RotatingCertificate
from croupier.kube.serving.post_app import PostApp, Reply
from tests.polling import TIMEOUT, until_async

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def answer(body: bytes) -> Reply:
    return Reply(200, b"%d" % len(body))


@dataclass
class Peers:
    """Connections to a server from several loopback addresses."""

    port: int
    opened: list[Streams] = field(default_factory=list)

    async def open(self, source: str = "127.0.0.2", context: ssl.SSLContext | None = None) -> Streams:
        streams = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0), ssl=context)
        self.opened.append(streams)
        return streams

    async def close(self) -> None:
        for _, writer in self.opened:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def server(monkeypatch: pytest.MonkeyPatch, limits: SlotLimits) -> AsyncIterator[Peers]:
    monkeypatch.setattr(connections, "CONNECTIONS", limits)
    app = PostApp({"/": answer}, max_body=1024 * 1024, refused=lambda path, status: None)
    async with http_server.serve(app, ListenOptions(Address("127.0.0.1", 0))) as taken:
        peers = Peers(taken.address.port)
        yield peers
        await peers.close()


async def answered(streams: Streams) -> bool:
    """Whether the connection is served; False if the server has closed it."""
    reader, writer = streams
    try:
        writer.write(GET)
        return (await asyncio.wait_for(reader.readline(), TIMEOUT)).startswith(b"HTTP/1.1 405")
    except OSError:
        return False


async def closed(streams: Streams) -> bool:
    """Wait until the server closes the connection."""
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(streams[0].read(), TIMEOUT) == b""
    return True


async def test_a_peer_gets_its_connections_and_no_more(monkeypatch):
    async with server(monkeypatch, SlotLimits(total=8, per_peer=2)) as peers:
        first = [await peers.open("127.0.0.2") for _ in range(2)]
        assert not await answered(await peers.open("127.0.0.2"))
        assert await answered(await peers.open("127.0.0.3"))

        assert [await answered(streams) for streams in first] == [True, True]


async def test_a_closed_connection_makes_room(monkeypatch):
    async with server(monkeypatch, SlotLimits(total=1, per_peer=1)) as peers:

        async def served() -> bool:
            return await answered(await peers.open("127.0.0.2"))

        for _ in range(5):
            await until_async(served, "the slot of the last connection, which the server closes")


async def test_a_full_server_still_accepts_another_peer(monkeypatch):
    async with server(monkeypatch, SlotLimits(total=3, per_peer=3)) as peers:
        first = [await peers.open("127.0.0.2") for _ in range(3)]
        assert await answered(await peers.open("127.0.0.3"))

        assert await closed(first[0]), "the oldest connection of the peer with the most"
        assert await answered(first[2])


async def test_a_peer_that_reconnects_too_fast_is_refused_and_others_are_not(monkeypatch):
    monkeypatch.setattr(connections, "NEW_CONNECTIONS", RateLimit(per_second=0.001, burst=3))
    async with server(monkeypatch, SlotLimits(total=8, per_peer=8)) as peers:
        outcomes = [await answered(await peers.open("127.0.0.2")) for _ in range(4)]
        assert outcomes == [True, True, True, False]
        assert await answered(await peers.open("127.0.0.3"))


SLOW = {
    "nothing": b"",
    "half a request line": b"GET / HT",
    "an empty line": b"\r\n",
    "half a header": b"GET / HTTP/1.1\r\nX-A: ",
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
async def test_headers_must_arrive_in_time(monkeypatch, sent):
    monkeypatch.setattr(connections if sent else http_server, "HEADER_TIMEOUT" if sent else "KEEP_ALIVE", 0.2)
    async with server(monkeypatch, SlotLimits(total=8, per_peer=8)) as peers:
        streams = await peers.open("127.0.0.2")
        streams[1].write(sent)
        assert await closed(streams)


async def test_large_headers_are_refused(monkeypatch):
    async with server(monkeypatch, SlotLimits(total=8, per_peer=8)) as peers:
        streams = await peers.open("127.0.0.2")
        streams[1].write(b"GET / HTTP/1.1\r\nX-A: " + b"a" * (2 * connections.MAX_HEADERS))
        assert await closed(streams)


async def test_an_idle_connection_is_kept(monkeypatch):
    """The API server keeps connections: the time limit for headers is one for requests that have begun."""
    monkeypatch.setattr(connections, "HEADER_TIMEOUT", 0.2)
    async with server(monkeypatch, SlotLimits(total=8, per_peer=8)) as peers:
        reader, writer = await peers.open("127.0.0.2")
        post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        for _ in range(2):  # the time limit passes before the first request and between both
            late = await peers.open("127.0.0.3")
            late[1].write(b"GET / HT")
            assert await closed(late), "its request had begun, later than the connection was idle"
            writer.write(post)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMEOUT)
            assert head.startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(1) == b"2"


class TestClientCertificates:
    """The webhook can demand the API server's client certificate."""

    @pytest.fixture
    def authority(self) -> SignedCertificate:
        now = datetime.now(UTC)
        return certificates.new_authority("ca", now=now, end=now + timedelta(days=1))

    @contextlib.asynccontextmanager
    async def serving(self, authority: SignedCertificate, folder: Path) -> AsyncIterator[Peers]:
        now = datetime.now(UTC)
        (folder / "ca.crt").write_bytes(certificates.pem(authority.certificate))
        issued = certificates.issue(
            certificates.common_name("x"),
            authority,
            now=now,
            end=now + timedelta(days=1),
            hosts=("127.0.0.1",),
        )
        served = RotatingCertificate(folder / "ca.crt")
        served.replace(certificates.pem(issued.certificate), certificates.key_pem(issued.key))
        app = PostApp({"/": answer}, max_body=1024, refused=lambda path, status: None)
        listen = ListenOptions(Address("127.0.0.1", 0), served, frozenset({"kube-apiserver"}))
        async with http_server.serve(app, listen) as taken:
            peers = Peers(taken.address.port)
            yield peers
            await peers.close()

    async def asks(self, peers: Peers, folder: Path, client: SignedCertificate | None) -> bool:
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        if client is not None:
            (folder / "client.crt").write_bytes(certificates.pem(client.certificate))
            (folder / "client.key").write_bytes(certificates.key_pem(client.key))
            context.load_cert_chain(folder / "client.crt", folder / "client.key")
        try:
            return await answered(await peers.open(context=context))
        except OSError:
            return False

    async def test_only_the_named_client_is_answered(self, authority, tmp_path):
        now = datetime.now(UTC)

        def client(name: str, signer: SignedCertificate) -> SignedCertificate:
            end = now + timedelta(days=1)
            return certificates.issue(certificates.common_name(name), signer, now=now, end=end, client=True)

        foreign = certificates.new_authority("other", now=now, end=now + timedelta(days=1))
        async with self.serving(authority, tmp_path) as peers:
            assert await self.asks(peers, tmp_path, client("kube-apiserver", authority))
            assert not await self.asks(peers, tmp_path, client("system:node:n1", authority))
            assert not await self.asks(peers, tmp_path, client("kube-apiserver", foreign))
            assert not await self.asks(peers, tmp_path, None)
