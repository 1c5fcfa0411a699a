"""A typical webhook that lists all nodes for each pod.

The server, the decision and the decoder are those of Croupier.
"""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.subjects.meter import read_command, report
from croupier.admission import certificates, mutate, review
from croupier.admission.certificate_rotation import ROTATION_RULES, RotationStep
from croupier.admission.review import AdmissionRequest
from croupier.api.pod_requests import LEAN_NODES
from croupier.capacity import availability
from croupier.core.availability import Availability
from croupier.core.fallbacks.policy import FallbackPolicy
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.serving import http_server, logs
from croupier.kube.serving.http_server import Address, ListenOptions, RotatingCertificate

LOOPBACK = "127.0.0.1"


class ListingWebhook:
    def __init__(self, api: Client) -> None:
        self._api = api

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        answer = await self._answer(body)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, body: bytes) -> bytes:
        question = review.read(body)
        assert isinstance(question, AdmissionRequest)
        offer = Availability()
        for node in (await self._api.list(LEAN_NODES, limit=0)).items:
            availability.update_node(offer, node)
        return review.answer(question.uid, mutate.rewrite(question.object, offer, FallbackPolicy()))


async def main(kubeconfig: Path) -> None:
    logs.setup(level="error")
    ring = certificates.after_step(
        RotationStep.BEGIN, None, datetime.now(UTC), hosts=(LOOPBACK,), rules=ROTATION_RULES
    )
    served = RotatingCertificate()
    served.replace(ring.certificate, ring.key)
    async with (
        api_client.connect(config.load(kubeconfig)) as api,
        http_server.serve(ListingWebhook(api), ListenOptions(Address(LOOPBACK, 0), served)) as listening,
    ):
        report(url=listening.url, authority=ring.bundle.decode())
        while await read_command():
            pass


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
