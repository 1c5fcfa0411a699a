"""While pods of a tenant flood the webhook's port, the API server's reviews are answered within its time-out.

The API server is real and calls the webhook with the failure policy Fail: a pod whose review is not answered
in time is not created. The flood comes from a process of its own, from other loopback addresses.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.admission.webhook_env import WebhookEnv
from tests.hostile import flooder

SECONDS = 20


@contextlib.asynccontextmanager
async def flooded(port: int, kind: str, requests: int) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.hostile.flooder",
        str(port),
        kind,
        str(requests),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"flooding\n"
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.parametrize("kind", flooder.KINDS)
async def test_the_api_server_is_answered_during_a_flood(env: WebhookEnv, kind, size, tell):
    env.options = replace(env.options, failure_policy="Fail")
    slowest = 0.0
    async with env.open(), flooded(env.port, kind, size.reviews) as flood:
        for number in range(size.pods):
            began = time.monotonic()
            pod = await env.create(f"p{number}", annotations={"gpu.mps.io/x": "1"})
            slowest = max(slowest, time.monotonic() - began)
            assert "stamp" in pod.metadata.annotations, "the review was answered"
        during = "during" if flood.returncode is None else "partly after"
    tell(f"flood of {kind}: {size.pods} pods were created {during} it, the slowest in {slowest:.1f} s")


async def test_pods_of_a_burst_are_all_created_during_a_flood(env: WebhookEnv, size):
    env.options = replace(env.options, failure_policy="Fail")
    async with env.open(), flooded(env.port, "large reviews", size.reviews):
        pods = await asyncio.gather(
            *(env.create(f"p{number}", annotations={"gpu.mps.io/x": "1"}) for number in range(2 * size.pods))
        )
    assert all("stamp" in pod.metadata.annotations for pod in pods)
