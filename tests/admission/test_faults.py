"""The webhook away, lying or renewed under load: GPU pods pass or fail by policy, all others never notice."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from croupier.admission import certificates, policy
from croupier.admission.authority import RULES, Rules, Step
from croupier.admission.certificates_shared import NAME
from croupier.admission.registration import KINDS
from croupier.admission.server import Webhook
from croupier.api import kinds
from croupier.kube import serving
from croupier.kube.client import PatchType
from croupier.kube.errors import ApiError
from croupier.kube.resource import Resource
from croupier.kube.serving import Address, Listen, Rotating
from tests.admission.desk import Desk, gpu, plain
from tests.kube.waiting import until_async


@contextlib.asynccontextmanager
async def away(_desk: Desk) -> AsyncIterator[None]:
    yield


@contextlib.asynccontextmanager
async def impostor(desk: Desk) -> AsyncIterator[None]:
    """Answers well, but nobody who is asked for has signed its certificate."""
    keys = certificates.taken(Step.BEGIN, None, datetime.now(UTC), hosts=("127.0.0.1",), rules=RULES)
    served = Rotating()
    served.replace(keys.certificate, keys.key)
    async with Webhook(desk.stamp, Listen(Address("127.0.0.1", desk.port), served)).serving():
        yield


def babbler(status: int, body: bytes) -> Callable[[Desk], contextlib.AbstractAsyncContextManager[None]]:
    """The right certificate, and nonsense for an answer."""

    async def talk(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    @contextlib.asynccontextmanager
    async def opened(desk: Desk) -> AsyncIterator[None]:
        served = Rotating()
        await desk.certificate(served).look()
        async with serving.serve(talk, Listen(Address("127.0.0.1", desk.port), served)):
            yield

    return opened


TIMEOUT = 3
"""Seconds a webhook is waited for: longer than a pod without one takes on a busy machine."""

FAULTS = {
    "down": (away, "connection refused"),
    "with a wrong certificate": (impostor, "certificate signed by unknown authority"),
    "talking nonsense": (babbler(200, b"<html>"), "couldn't get version/kind|unmarshal|invalid character"),
    "crashed": (babbler(500, b""), "failed calling webhook"),
}


@pytest.mark.parametrize(("fault", "words"), FAULTS.values(), ids=FAULTS)
async def test_a_webhook_that_is(desk, fault, words):
    async with desk.open():
        pass
    async with fault(desk):
        passed = await desk.create("ignored", spec=gpu(), raw=True, dry_run=True)
        assert "stamp" not in (passed["metadata"].get("annotations") or {})

        desk.wish = replace(desk.wish, failure_policy="Fail")
        await set_failure(desk, "Fail")

        async def refusal() -> str:
            with contextlib.suppress(ApiError):
                await desk.create("failed", spec=gpu(), dry_run=True)
                return ""
            try:
                await desk.create("failed", spec=gpu(), dry_run=True)
            except ApiError as error:
                return str(error)
            return ""

        said = await until_async(refusal, "the policy to be in force")
        assert re.search(words, said)
        assert "fallback.gpu-webhook.k8s.io" in said
        await desk.create("other", spec=plain(), dry_run=True)


async def test_while_it_is_down_the_api_server_itself_keeps_unmarked_pods_out(desk):
    async with desk.open():
        pass
    own = {"matchLabels": {"kubernetes.io/metadata.name": desk.namespace}}
    documents = policy.documents(own)
    for document in documents:
        await desk.api.apply(_kind(document), document, force=True)
    try:

        async def refusal() -> str:
            try:
                await desk.create("unmarked", spec=gpu(), dry_run=True)
            except ApiError as error:
                return str(error)
            return ""

        said = await until_async(refusal, "the policy to be in force")
        await desk.create("other", spec=plain(), dry_run=True)
    finally:
        for document in documents:
            await desk.api.delete(_kind(document), document["metadata"]["name"])
    assert "croupier webhook is down or was passed by" in said


async def test_a_frozen_webhook_costs_its_timeout_and_only_gpu_pods_pay(desk):
    """Nobody accepts what the kernel took in: as with a stopped process, only cheaper to make."""
    desk.wish = replace(desk.wish, failure_policy="Fail")
    async with desk.open():
        await shorten(desk, TIMEOUT)
    frozen = serving._listener(Address("127.0.0.1", desk.port))
    with contextlib.closing(frozen):

        async def refusal() -> str:
            try:
                await desk.create("waits", spec=gpu(), dry_run=True)
            except ApiError as error:
                return str(error)
            return ""

        began = time.monotonic()
        waiting = asyncio.create_task(until_async(refusal, "the refusal"))
        await desk.create("other", spec=plain(), dry_run=True)
        assert not waiting.done(), "the pod that asks for nothing waited too"
        assert "deadline exceeded" in await waiting
        assert time.monotonic() - began >= TIMEOUT

        await set_failure(desk, "Ignore")

        async def passes() -> bool:
            return not await refusal()

        await until_async(passes, "the pod to pass by policy")


async def test_not_one_pod_fails_while_authority_and_certificate_change_under_load(desk):
    """Every answer asks to hang up, so that each pod brings a new handshake."""
    desk.wish = replace(desk.wish, failure_policy="Fail")
    desk.rules = Rules(overlap=timedelta(seconds=3))  # each state must last until it is looked at
    async with desk.open() as certificate, desk.replica(port=0) as other:
        before = certificate._ring
        desk.hangs_up()
        done, failed = asyncio.Event(), []
        created = 0

        async def customer(number: int) -> None:
            nonlocal created
            while not done.is_set():
                try:
                    pod = await desk.create(f"load-{number}", spec=gpu(), raw=True, dry_run=True)
                    assert "stamp" in pod["metadata"]["annotations"]
                    created += 1
                except ApiError as error:
                    failed.append(str(error))

        customers = [asyncio.create_task(customer(number)) for number in range(3)]
        without = [{"op": "remove", "path": "/data/ca.key"}]
        await desk.api.patch(
            kinds.SECRETS, NAME, without, namespace=desk.namespace, patch_type=PatchType.JSON
        )
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
    assert seen[-3:] == [(2, False), (2, True), (1, True)], "joined, then issued, then left"
    assert other._ring is not None
    assert other._ring.certificate == certificate._ring.certificate


async def _true(found: bool) -> bool:
    return found


async def set_failure(desk: Desk, failure: str) -> None:
    await _patch(desk, {"failurePolicy": failure})


async def shorten(desk: Desk, seconds: int) -> None:
    await _patch(desk, {"timeoutSeconds": seconds})


async def _patch(desk: Desk, fields: dict[str, Any]) -> None:
    for kind in KINDS:
        found = await desk.api.get(kind, desk.wish.name)
        changed = {"webhooks": [{"name": one.name, **fields} for one in found.webhooks]}
        await desk.api.patch(kind, desk.wish.name, changed, patch_type=PatchType.STRATEGIC)


def _kind(document: dict[str, Any]) -> Resource[dict[str, Any]]:
    kind = document["kind"]
    plural = kind.lower()[:-1] + "ies" if kind.endswith("y") else kind.lower() + "s"
    return Resource("admissionregistration.k8s.io", "v1", plural, kind, False, dict)
