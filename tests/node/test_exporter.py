"""Readings of the DCGM exporter: taken where one runs on the node, and missed by nobody where it does not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from croupier.api.core_v1 import Pod, PodStatus
from croupier.api.meta import ObjectMeta
from croupier.kube.clock import SystemClock
from croupier.node.cards import exporter
from croupier.node.cards.cards import Seen, Sighting, Vital
from croupier.node.cards.exporter import Exporter

TEXT = """\
# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a",device="nvidia0"} 61
DCGM_FI_DEV_GPU_TEMP{gpu="1",UUID="GPU-b",device="nvidia1"} 40
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a"} 1024
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",GPU_I_ID="7"} 10
# TYPE process_open_fds gauge
process_open_fds 12
"""


@asynccontextmanager
async def answering(text: str, status: str = "200 OK") -> AsyncIterator[tuple[int, list[int]]]:
    """Something on loopback that answers as an exporter does; its port, and how often it was asked."""
    asked: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.append(1)
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        writer.write((head + text).encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], asked


def pod(namespace: str = "gpu-operator", phase: str = "Running", **labels: str) -> Pod:
    named = labels or {"app": "nvidia-dcgm-exporter"}
    return Pod(
        metadata=ObjectMeta(name="exporter", namespace=namespace, labels=named),
        status=PodStatus(phase=phase, pod_ip="127.0.0.1"),
    )


def reading(*pods: Pod, port: int = 9, every: float = 60.0) -> Exporter:
    believed = frozenset({"gpu-operator"})
    return Exporter(lambda: pods, SystemClock(), believed=believed, every=every, port=port)


async def test_readings_are_told_by_card_and_asked_for_once_a_heartbeat():
    async with answering(TEXT) as (port, asked):
        reads = reading(pod(), port=port)
        first, again = await reads.read(), await reads.read()

    assert first == again
    assert first == {
        "GPU-a": {"DCGM_FI_DEV_GPU_TEMP": "61", "DCGM_FI_DEV_FB_USED": "1024"},
        "GPU-b": {"DCGM_FI_DEV_GPU_TEMP": "40"},
    }
    assert len(asked) == 1


STRANGERS = {
    "none": (),
    "a pod of somebody who calls it so": (pod("team-a"),),
    "one that does not run": (pod(phase="Pending"),),
    "another service": (pod(app="gpu-feature-discovery"),),
}


@pytest.mark.parametrize("pods", STRANGERS.values(), ids=STRANGERS)
async def test_nobody_else_is_asked(pods):
    async with answering(TEXT) as (port, asked):
        assert await reading(*pods, port=port).read() is None

    assert asked == []


@pytest.mark.parametrize("text", ["", "{{{", "DCGM_FI_DEV_GPU_TEMP{UUID="])
async def test_an_exporter_that_talks_nonsense_is_left_out(text):
    async with answering(text) as (port, _):
        assert not await reading(pod(), port=port).read()


async def test_an_exporter_that_is_away_is_left_out():
    async with answering("", status="503 Service Unavailable") as (port, _):
        assert await reading(pod(), port=port).read() is None
    assert await reading(pod(), port=port).read() is None


def test_they_take_the_place_of_what_the_driver_told():
    one = Seen(index=0, uuid="GPU-a", address="0000:10:00.0", health=Vital(metrics={"powerWatts": "62"}))
    other = Seen(index=1, uuid="GPU-c", address="0000:11:00.0", health=Vital(metrics={"powerWatts": "62"}))

    seen = exporter.enriched(Sighting(cards=(one, other)), exporter.parsed(TEXT))

    assert seen.cards[0].health.metrics["DCGM_FI_DEV_GPU_TEMP"] == "61"
    assert seen.cards[1] == other
