"""Faults of the webhook: GPU pods follow the failure policy, other pods are not affected."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from croupier.admission import certificates, mark_policy
from croupier.admission.certificate_rotation import ROTATION_RULES, RotationRules, RotationStep
from croupier.admission.certificates_shared import NAME
from croupier.admission.registration import KINDS
from croupier.admission.server import WebhookServer
from croupier.api import kinds
from croupier.kube.client.api_client import PatchType
from croupier.kube.client.errors import ApiError
from croupier.kube.client.resource import Resource
from croupier.kube.serving import http_server
from croupier.kube.serving.http_server import Address, ListenOptions, RotatingCertificate
from tests.admission.webhook_env import WebhookEnv, gpu, plain
from tests.polling import until_async


@contextlib.asynccontextmanager
async def down(_desk: WebhookEnv) -> AsyncIterator[None]:
    yield


@contextlib.asynccontextmanager
async def wrong_certificate(env: WebhookEnv) -> AsyncIterator[None]:
    """Valid answers, but the certificate of an unknown CA."""
    keys = certificates.after_step(
        RotationStep.BEGIN, None, datetime.now(UTC), hosts=("127.0.0.1",), rules=ROTATION_RULES
    )
    served = RotatingCertificate()
    served.replace(keys.certificate, keys.key)
    async with WebhookServer(env.stamp, ListenOptions(Address("127.0.0.1", env.port), served)).serving():
        yield


def invalid_answers(
    status: int, body: bytes
) -> Callable[[WebhookEnv], contextlib.AbstractAsyncContextManager[None]]:
    """The right certificate, but invalid answers."""

    async def talk(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    @contextlib.asynccontextmanager
    async def opened(env: WebhookEnv) -> AsyncIterator[None]:
        served = RotatingCertificate()
        await env.certificate(served).sync()
        async with http_server.serve(talk, ListenOptions(Address("127.0.0.1", env.port), served)):
            yield

    return opened


TIMEOUT = 3
"""The webhook timeout in seconds: longer than a normal pod creation on a busy machine."""

FAULTS = {
    "down": (down, "connection refused"),
    "with a wrong certificate": (wrong_certificate, "certificate signed by unknown authority"),
    "answering invalid data": (
        invalid_answers(200, b"<html>"),
        "couldn't get version/kind|unmarshal|invalid character",
    ),
    "crashed": (invalid_answers(500, b""), "failed calling webhook"),
}


@pytest.mark.parametrize(("fault", "words"), FAULTS.values(), ids=FAULTS)
async def test_a_webhook_that_is(env, fault, words):
    async with env.open():
        pass
    async with fault(env):
        passed = await env.create("ignored", spec=gpu(), raw=True, dry_run=True)
        assert "stamp" not in (passed["metadata"].get("annotations") or {})

        env.options = replace(env.options, failure_policy="Fail")
        await set_failure(env, "Fail")

        async def refusal() -> str:
            with contextlib.suppress(ApiError):
                await env.create("failed", spec=gpu(), dry_run=True)
                return ""
            try:
                await env.create("failed", spec=gpu(), dry_run=True)
            except ApiError as error:
                return str(error)
            return ""

        said = await until_async(refusal, "the policy to be in force")
        assert re.search(words, said)
        assert "fallback.gpu-webhook.k8s.io" in said
        await env.create("other", spec=plain(), dry_run=True)


async def test_the_api_server_refuses_unmarked_pods_while_the_webhook_is_down(env):
    async with env.open():
        pass
    own = {"matchLabels": {"kubernetes.io/metadata.name": env.namespace}}
    documents = mark_policy.documents(own)
    for document in documents:
        await env.api.apply(_kind(document), document, force=True)
    try:

        async def refusal() -> str:
            try:
                await env.create("unmarked", spec=gpu(), dry_run=True)
            except ApiError as error:
                return str(error)
            return ""

        said = await until_async(refusal, "the policy to be in force")
        await env.create("other", spec=plain(), dry_run=True)
    finally:
        for document in documents:
            await env.api.delete(_kind(document), document["metadata"]["name"])
    assert "croupier webhook is down or was not called" in said


async def test_a_hanging_webhook_delays_only_gpu_pods_by_its_timeout(env):
    """Connections are not accepted, as with a stopped process."""
    env.options = replace(env.options, failure_policy="Fail")
    async with env.open():
        await shorten(env, TIMEOUT)
    frozen = http_server._listener(Address("127.0.0.1", env.port))
    with contextlib.closing(frozen):

        async def refusal() -> str:
            try:
                await env.create("waits", spec=gpu(), dry_run=True)
            except ApiError as error:
                return str(error)
            return ""

        began = time.monotonic()
        waiting = asyncio.create_task(until_async(refusal, "the refusal"))
        await env.create("other", spec=plain(), dry_run=True)
        assert not waiting.done(), "the pod without cards waited, too"
        assert "deadline exceeded" in await waiting
        assert time.monotonic() - began >= TIMEOUT

        await set_failure(env, "Ignore")

        async def passes() -> bool:
            return not await refusal()

        await until_async(passes, "the pod to pass by policy")


async def test_no_pod_fails_while_ca_and_certificate_are_rotated_under_load(env):
    """Every answer closes its connection, so that each pod needs a new handshake."""
    env.options = replace(env.options, failure_policy="Fail")
    env.rules = RotationRules(overlap=timedelta(seconds=3))  # each state must last until it is observed
    async with env.open() as certificate, env.replica(port=0) as other:
        before = certificate._ring
        env.hangs_up()
        done, failed = asyncio.Event(), []
        created = 0

        async def customer(number: int) -> None:
            nonlocal created
            while not done.is_set():
                try:
                    pod = await env.create(f"load-{number}", spec=gpu(), raw=True, dry_run=True)
                    assert "stamp" in pod["metadata"]["annotations"]
                    created += 1
                except ApiError as error:
                    failed.append(str(error))

        customers = [asyncio.create_task(customer(number)) for number in range(3)]
        without = [{"op": "remove", "path": "/data/ca.key"}]
        await env.api.patch(kinds.SECRETS, NAME, without, namespace=env.namespace, patch_type=PatchType.JSON)
        seen: list[tuple[int, bool]] = []

        async def renewed() -> bool:
            ring = certificate._ring.ring
            state = (len(ring.authorities), ring.serving.signed_by == ring.youngest.key)
            if state not in seen[-1:]:
                seen.append(state)
            return state == (1, True) and certificate._ring.bundle != before.bundle

        await until_async(renewed, "the whole change")
        enough = created + 20
        await until_async(lambda: _true(created > enough), "some more pods")
        done.set()
        await asyncio.gather(*customers)

    assert failed == []
    assert seen[-3:] == [(2, False), (2, True), (1, True)], "JOIN, then ISSUE, then LEAVE"
    assert other._ring is not None
    assert other._ring.certificate == certificate._ring.certificate


async def _true(found: bool) -> bool:
    return found


async def set_failure(env: WebhookEnv, failure: str) -> None:
    await _patch(env, {"failurePolicy": failure})


async def shorten(env: WebhookEnv, seconds: int) -> None:
    await _patch(env, {"timeoutSeconds": seconds})


async def _patch(env: WebhookEnv, fields: dict[str, Any]) -> None:
    for kind in KINDS:
        found = await env.api.get(kind, env.options.name)
        changed = {"webhooks": [{"name": webhook.name, **fields} for webhook in found.webhooks]}
        await env.api.patch(kind, env.options.name, changed, patch_type=PatchType.STRATEGIC)


def _kind(document: dict[str, Any]) -> Resource[dict[str, Any]]:
    kind = document["kind"]
    plural = kind.lower()[:-1] + "ies" if kind.endswith("y") else kind.lower() + "s"
    return Resource("admissionregistration.k8s.io", "v1", plural, kind, False, dict)
