"""A process is not ready before its readiness checks are registered."""

import asyncio

import aiohttp

from croupier.kube.serving.component_runner import Component
from croupier.kube.serving.http_server import Address
from croupier.wiring import process_context
from croupier.wiring.process_context import ProcessOptions
from tests.admission.webhook_env import free_port
from tests.polling import until_async


async def test_a_process_is_not_ready_before_it_starts(cluster):
    health = Address("127.0.0.1", free_port())

    async def says() -> tuple[int, str]:
        async with aiohttp.request("GET", f"http://127.0.0.1:{health.port}/readyz") as answer:
            return answer.status, await answer.text()

    async with process_context.open_context(
        ProcessOptions(kubeconfig=cluster.kubeconfig, health=health)
    ) as made:
        status, why = await says()
        assert (status, "starting" in why) == (503, True)

        async def idle(stop: asyncio.Event) -> None:
            await stop.wait()

        working = asyncio.create_task(
            process_context.run_until_stopped(made, [Component("idle", idle)], name="idle")
        )

        async def ready() -> bool:
            return (await says())[0] == 200

        await until_async(ready, "it to be ready", within=60.0)
        working.cancel()
        await asyncio.wait({working})
