"""Readings of the DCGM exporter are used if one runs on the node."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from croupier.api.core_v1 import Pod, PodStatus
from croupier.api.meta import ObjectMeta
from croupier.core.model.gpu_card import CardHealth, GpuCard
from croupier.kube.client.clock import SystemClock
from croupier.node.cards import dcgm_exporter
from croupier.node.cards.card_driver import DriverSnapshot
from croupier.node.cards.dcgm_exporter import DcgmExporter

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
    """A fake exporter on loopback: its port, and a list with one entry per request."""
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


def reading(*pods: Pod, port: int = 9, every: float = 60.0) -> DcgmExporter:
    believed = frozenset({"gpu-operator"})
    return DcgmExporter(lambda: pods, SystemClock(), trusted_namespaces=believed, every=every, port=port)


async def test_readings_are_by_card_and_requested_once_per_interval():
    async with answering(TEXT) as (port, asked):
        reads = reading(pod(), port=port)
        first, again = await reads.read(), await reads.read()

    assert first == again
    assert first == {
        "GPU-a": {"DCGM_FI_DEV_GPU_TEMP": "61", "DCGM_FI_DEV_FB_USED": "1024"},
        "GPU-b": {"DCGM_FI_DEV_GPU_TEMP": "40"},
    }
    assert len(asked) == 1


UNTRUSTED = {
    "none": (),
    "a pod with that label in another namespace": (pod("team-a"),),
    "a pod that is not running": (pod(phase="Pending"),),
    "another service": (pod(app="gpu-feature-discovery"),),
}


@pytest.mark.parametrize("pods", UNTRUSTED.values(), ids=UNTRUSTED)
async def test_no_other_pod_is_requested(pods):
    async with answering(TEXT) as (port, asked):
        assert await reading(*pods, port=port).read() is None

    assert asked == []


@pytest.mark.parametrize("text", ["", "{{{", "DCGM_FI_DEV_GPU_TEMP{UUID="])
async def test_invalid_readings_are_ignored(text):
    async with answering(text) as (port, _):
        assert not await reading(pod(), port=port).read()


async def test_an_unavailable_exporter_is_ignored():
    async with answering("", status="503 Service Unavailable") as (port, _):
        assert await reading(pod(), port=port).read() is None
    assert await reading(pod(), port=port).read() is None


def test_readings_of_the_exporter_replace_those_of_the_driver():
    one = GpuCard(
        index=0, uuid="GPU-a", address="0000:10:00.0", health=CardHealth(metrics={"powerWatts": "62"})
    )
    other = GpuCard(
        index=1, uuid="GPU-c", address="0000:11:00.0", health=CardHealth(metrics={"powerWatts": "62"})
    )

    seen = dcgm_exporter.with_readings(DriverSnapshot(cards=(one, other)), dcgm_exporter.parse(TEXT))

    assert seen.cards[0].health.metrics["DCGM_FI_DEV_GPU_TEMP"] == "61"
    assert seen.cards[1] == other
