"""A kube-scheduler of the lab with a command line or configuration of a test."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from croupier_lab import ports, probe, process
from croupier_lab.controlplane import SCHEDULER
from croupier_lab.lab import Lab
from croupier_lab.probe import Endpoint
from croupier_lab.process import Program
from tests import polling

TIMEOUT = 90.0


@asynccontextmanager
async def running_scheduler(lab: Lab, folder: Path, command: Sequence[str]) -> AsyncIterator[None]:
    """Run the lab's kube-scheduler with this command line; yields when it is ready."""
    (port,) = ports.free(1, chance=random.Random())  # noqa: S311  # a port, no secret
    serving = lab.site.pair(SCHEDULER)
    argv = (
        lab.site.binaries[SCHEDULER],
        *(word for word in command if not word.startswith("--secure-port=")),
        f"--secure-port={port}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
    )
    running = process.start(Program("placed", argv), folder)
    endpoint = Endpoint(f"https://127.0.0.1:{port}/readyz", lab.site.authority, lab.site.pair("admin"))

    async def ready() -> bool:
        assert process.alive(running), f"kube-scheduler exited; see {running.log}"
        try:
            return (await asyncio.to_thread(probe.get, endpoint))[0] == 200
        except OSError:
            return False

    try:
        await polling.until_async(ready, "the scheduler to accept its configuration", TIMEOUT)
        yield
    finally:
        await process.stop(running)
