"""Runs one flow in its own process, which may be killed at any of its writes.

Run as `python -m tests.proof.flow_process FLOW --kubeconfig ... --node ... --namespace ...`, with
`--number N --when W` for a fault.
It runs in an environment that the test has set up (flow_env.py) and reports its writes if it survives.
Events are sent over a connection without fault injection, because no state depends on them.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from croupier.api import kinds
from croupier.core.model.refusal import Refusal
from croupier.extender.protocol import ExtenderBindingArgs
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import KubeError, NotFound
from croupier.kube.controller.events import EventRecorder
from tests.polling import until, until_async
from tests.proof.injection import WriteInjection
from tests.proof.manager_env import LedgerManagerEnv, Scope
from tests.proof.processes import emit, log_to_stderr

POD = "worker"
RESERVATION = "claim"


class BindRefused(Exception):
    """The bind was refused; the message says why."""


class FlowRun:
    """The controllers for one flow environment, and a client without fault injection."""

    def __init__(
        self, house: LedgerManagerEnv, person: Client, scope: Scope, injection: WriteInjection
    ) -> None:
        self.house = house
        self.injection = injection
        self.person = person
        self.node = scope.node
        self.namespace = scope.namespace
        self._holder = ""

    async def holder(self) -> str:
        """The holder name of the pod at the start of the flow."""
        if not self._holder:
            pod = await self.person.get(kinds.PODS, POD, namespace=self.namespace)
            self._holder = f"{self.namespace}/{POD}/{pod.metadata.uid}"
        return self._holder

    async def reserve(self) -> None:
        answer = await self.house.manager.reserve(await self.holder(), self.node, 2, 60)
        assert not isinstance(answer, Refusal), answer

    async def bind(self) -> None:
        _, _, uid = (await self.holder()).split("/")
        why = await self.house.binder.bind(ExtenderBindingArgs(POD, self.namespace, uid, self.node))
        if why:
            raise BindRefused(why)
        await self.house.binder.drain()

    async def release(self) -> None:
        await self.house.manager.release(await self.holder(), self.node)

    async def settle(self) -> None:
        """Let the holder controller expire, promote and release."""
        self.house.start("holders")
        await until(self._settled, "the holders to be settled")

    async def audit(self) -> None:
        self.house.start("audit")
        await until(self._as_pods_are, "the audit to repair what is wrong")

    async def status(self) -> None:
        """Let the audit compare a ledger without a summary, and its result be written."""
        self.house.start("audit", "standing")
        await until_async(self._is_audited, "the status of the ledger")

    async def _is_audited(self) -> bool:
        found = await self.person.get(kinds.NODE_RESERVATIONS, self.node)
        return found.status.observed_generation == found.metadata.generation

    def _settled(self) -> bool:
        ledger = self.house.manager.ledger(self.node)
        return ledger is not None and not ledger.held and self._as_pods_are()

    def _as_pods_are(self) -> bool:
        """Exactly the bound pods are holders."""
        ledger = self.house.manager.ledger(self.node)
        assert ledger is not None
        bound = {
            f"{self.namespace}/{pod.metadata.name}/{pod.metadata.uid}"
            for pod in self.house.pods.store
            if pod.spec.node_name == self.node
        }
        return ledger.holders() == bound

    async def cards(self) -> None:
        """Let the capacity controller open, synchronize or close the ledger."""
        self.house.start("capacity")
        await until(self._cards_as_reported, "the ledger to follow its node")

    def _cards_as_reported(self) -> bool:
        ledger, node = self.house.manager.ledger(self.node), self.house.nodes.store.named(self.node)
        if node is None:
            return ledger is None
        return ledger is not None and len(ledger.cards) == int(node.status.allocatable["nvidia.com/gpu"])

    async def finalize(self) -> None:
        """A Reservation from its creation to its deletion by a user."""
        self.house.start("reservation")
        await until_async(self._reserved, "the Reservation to be Reserved")
        await until(lambda: self.injection.quiet, "no write to be under way")
        await self.person.delete(kinds.RESERVATIONS, RESERVATION, namespace=self.namespace)
        await until_async(self._gone, "the Reservation to be gone")

    async def _reserved(self) -> bool:
        found = await self.person.get(kinds.RESERVATIONS, RESERVATION, namespace=self.namespace)
        return found.status.phase == "Reserved"

    async def _gone(self) -> bool:
        try:
            await self.person.get(kinds.RESERVATIONS, RESERVATION, namespace=self.namespace)
        except NotFound:
            return True
        return False


FLOWS: Mapping[str, Callable[[FlowRun], Awaitable[None]]] = {
    "reserve": FlowRun.reserve,
    "bind": FlowRun.bind,
    "release": FlowRun.release,
    "expire": FlowRun.settle,
    "promote": FlowRun.settle,
    "free": FlowRun.settle,
    "finalize": FlowRun.finalize,
    "open": FlowRun.cards,
    "sync": FlowRun.cards,
    "close": FlowRun.cards,
    "audit": FlowRun.audit,
    "status": FlowRun.status,
    "takeover": FlowRun.bind,
    "memory-bind": FlowRun.bind,
    "memory-reservation": FlowRun.finalize,
}


async def with_retries(flow: Callable[[], Awaitable[None]]) -> str:
    """Retry like a caller; returns the last error, or an empty string."""
    why = ""
    for _ in range(4):
        try:
            await flow()
            return ""
        except (KubeError, BindRefused) as error:
            sys.stderr.write(f"again: {error}\n")
            why = str(error)
    return why


@contextlib.asynccontextmanager
async def flow_run(options: Any, injection: WriteInjection) -> AsyncIterator[FlowRun]:
    scope = Scope(options.node, options.namespace)
    loaded = config.load(options.kubeconfig)
    async with (
        api_client.connect(loaded) as person,
        api_client.connect(loaded, observe=injection.observe) as api,
    ):
        memory = options.flow.startswith("memory")
        house = LedgerManagerEnv(
            api.fenced(injection.permit), EventRecorder(person, "proof"), scope, in_memory=memory
        )
        try:
            await house.synced()
            if memory:
                await house.capacity().prime()
            yield FlowRun(house, person, scope, injection)
        finally:
            await house.close()


async def start(options: Any) -> None:
    injection = WriteInjection(options.number, options.when)
    async with flow_run(options, injection) as play:
        refused = await with_retries(lambda: FLOWS[options.flow](play))
        # The effect of a write may be visible before its answer arrives, which is when it is counted.
        await until(lambda: injection.quiet, "no write to be under way")
        emit({"writes": injection.writes, "refused": refused})


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("flow", choices=FLOWS)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--when", default="never")
    log_to_stderr()
    asyncio.run(start(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
