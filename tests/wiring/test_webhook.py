"""`croupier webhook` as started from the command line: readiness, freeze and resume, shutdown under load."""

import asyncio
import contextlib
import os
import signal
import ssl
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import pytest_asyncio
import yaml
from typer.testing import CliRunner

from croupier.admission.configurations import PATHS
from croupier.admission.registration import KINDS
from croupier.api import kinds
from croupier.cli import app
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, PatchType
from croupier.kube.client.errors import ApiError, NotFound
from croupier_lab import process
from croupier_lab.lab import Lab
from tests.admission.webhook_env import free_ports, gpu, plain
from tests.polling import until, until_async
from tests.wiring import first_lines

MARK = "gpu.mps.io/ledger"
WITHIN = 60.0


@dataclass
class Replica:
    process: Process
    port: int
    health: int
    log: Path
    web: aiohttp.ClientSession

    async def says(self, path: str = "/readyz") -> tuple[int, str]:
        try:
            async with self.web.get(f"http://127.0.0.1:{self.health}{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientError as error:
            return 0, str(error)

    async def is_ready(self) -> bool:
        assert self.process.returncode is None, "it ended"
        return (await self.says())[0] == 200

    def logged_ready(self) -> bool:
        return "is ready after" in self.log.read_text()

    async def end(self) -> int:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        return await asyncio.wait_for(self.process.wait(), WITHIN)


@dataclass
class WebhookEnv:
    api: Client
    lab: Lab
    namespace: str
    web: aiohttp.ClientSession

    async def start(self, *options: str) -> Replica:
        port, health = free_ports(2)
        log = self.lab.logs / f"{self.namespace}-{health}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "croupier.cli", "webhook", f"--kubeconfig={self.lab.kubeconfig}", "--log-level=info"),
                *(
                    f"--listen=127.0.0.1:{port}",
                    f"--url=https://127.0.0.1:{port}",
                    f"--health=127.0.0.1:{health}",
                ),
                *(f"--namespace={self.namespace}", f"--only-labelled=guarded-by={self.namespace}", *options),
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stderr=output,
            )
        return Replica(process, port, health, log, self.web)

    async def create(self, name: str, spec: dict[str, Any], namespace: str) -> str:
        """Empty if the pod was marked, `unmarked` if not, else the reason of the refusal."""
        body = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
        try:
            pod = await self.api.create(kinds.PODS, body, dry_run=True)
        except ApiError as error:
            return str(error)
        return "" if MARK in pod.spec.containers[0].resources.requests else "unmarked"

    async def send_to(self, replica: Replica) -> None:
        """Route requests to one replica, as a Service does when the other is not ready."""
        base = f"https://127.0.0.1:{replica.port}"
        for kind in KINDS:
            names = [hook.name for hook in (await self.api.get(kind, "croupier-webhook")).webhooks]
            there = [{"name": name, "clientConfig": {"url": base + PATHS[name]}} for name in names]
            patch = {"webhooks": there}
            await self.api.patch(kind, "croupier-webhook", patch, patch_type=PatchType.STRATEGIC)


@pytest_asyncio.fixture
async def env(lab: Lab, namespace: str) -> AsyncIterator[WebhookEnv]:
    async with (
        api_client.connect(config.load(lab.kubeconfig)) as api,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(2)) as web,
    ):
        yield WebhookEnv(api, lab, namespace, web)
        for kind in KINDS:
            with contextlib.suppress(NotFound):
                await api.delete(kind, "croupier-webhook")


@pytest_asyncio.fixture
async def guarded(env: WebhookEnv) -> AsyncIterator[str]:
    """A namespace that the webhook matches; the certificate is in another one, which is excluded."""
    name = f"{env.namespace}-guarded"
    env.lab.kubectl("create", "namespace", name)
    env.lab.kubectl("label", "namespace", name, f"guarded-by={env.namespace}")
    env.lab.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={name}", "--timeout=30s")
    yield name
    env.lab.kubectl("delete", "namespace", name, "--wait=false")


async def test_two_replicas_share_a_certificate_survive_a_freeze_and_drain_requests(env, guarded):
    one, other = await asyncio.gather(
        env.start("--failure-policy=Fail", "--drain=3"), env.start("--no-register", "--drain=0")
    )
    try:
        for replica in (one, other):
            await until_async(replica.is_ready, "the webhook to be ready", within=WITHIN)
            await until(replica.logged_ready, "its log to say so")
            first_lines.check(replica.log.read_text(), "webhook")

        async def asked() -> bool:
            return bool(await env.create("probe", gpu(), guarded) == "")

        await until_async(asked, "the API server to ask it")
        assert await _certificate(one.port) == await _certificate(other.port)
        assert "croupier_webhook_certificate_expiry_timestamp_seconds 1.8" in (await one.says("/metrics"))[1]

        process.suspend(psutil.Process(one.process.pid))
        waiting = asyncio.create_task(env.create("frozen", gpu(), guarded))
        assert await env.create("other", plain(), guarded) == "unmarked"
        assert not waiting.done()
        assert "context deadline exceeded" in await waiting
        one.process.send_signal(signal.SIGCONT)
        await until_async(asked, "it to answer again")

        assert await _refused_in_a_rush(env, (one, other), guarded) == []
        assert one.process.returncode == 0
    finally:
        ended = [await replica.end() for replica in (one, other)]
    assert ended == [0, 0]


async def test_before_its_caches_have_synced_it_is_not_ready_and_does_not_listen(env, tmp_path):
    """A response from an empty cache would be wrong."""
    nowhere = yaml.safe_load(env.lab.kubeconfig.read_text())
    for entry in nowhere["clusters"]:
        entry["cluster"]["server"] = "https://127.0.0.1:9"
    unreachable = tmp_path / "nowhere.kubeconfig"
    unreachable.write_text(yaml.safe_dump(nowhere))
    replica = await env.start(f"--kubeconfig={unreachable}")
    try:

        async def heard() -> str:
            status, said = await replica.says()
            return said if status == 503 and "cannot reach" in said else ""

        said = await until_async(heard, "it to say why it is not ready", within=WITHIN)
        assert (
            "not synced yet: created pods, reservations.mps.nvidia.com, resourcequotas, nodes, secrets"
            in said
        )
        assert "no certificate yet: " in said
        assert "not answering yet" in said
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", replica.port)
    finally:
        assert await replica.end() == 0


NONSENSE = {
    "--failure-policy=Maybe": "must be Ignore or Fail",
    "--url=http://127.0.0.1:1": "must be https://HOST:PORT",
    "--only-labelled=team": "must be KEY=VALUE",
    "--listen=here": "is not HOST:PORT",
    "--fallback=sideways": "must be nearest, down, up or off",
}


@pytest.mark.parametrize(("option", "words"), NONSENSE.items(), ids=NONSENSE)
def test_invalid_options_are_refused_with_a_message(option, words):
    ended = CliRunner().invoke(app, ["webhook", option])

    assert ended.exit_code == 2
    assert words in ended.stderr


def test_the_printed_configurations_are_valid(lab):
    printed = CliRunner().invoke(app, ["webhook-config", "--inject-ca-from=gpu/cert"])

    said = lab.kubectl("apply", "--dry-run=server", "-f", "-", stdin=printed.stdout).stdout
    assert said.count("created (server dry run)") == 2


async def _refused_in_a_rush(env: WebhookEnv, replicas: tuple[Replica, Replica], namespace: str) -> list[str]:
    """The refusals of pods while the first replica stopped and the second took over."""
    leaving, staying = replicas
    done, refused, passed = asyncio.Event(), [], 0

    async def customer(number: int) -> None:
        nonlocal passed
        while not done.is_set():
            if said := await env.create(f"rush-{number}", gpu(), namespace):
                refused.append(said)
            passed += 1

    async def many(more: int) -> None:
        enough = passed + more

        async def come() -> bool:
            return passed >= enough

        await until_async(come, "more pods")

    customers = [asyncio.create_task(customer(number)) for number in range(4)]
    await many(20)
    leaving.process.terminate()

    async def goes() -> bool:
        return (await leaving.says())[0] == 503

    await until_async(goes, "it to say that it goes")
    await env.send_to(staying)
    await asyncio.wait_for(leaving.process.wait(), WITHIN)
    await many(20)
    done.set()
    await asyncio.gather(*customers)
    return refused


async def _certificate(port: int) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return found
