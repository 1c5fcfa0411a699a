"""One scheduler as its own process: it claims and releases cards and records the results.

Run as `python -m tests.proof.claim_load`. Each writer in it is a CapacityManager with its own client and
watch. At the end the process reports all grants, which the test compares with the recorded history.
"""

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.api.mps import NodeReservation
from croupier.capacity.crd import CRDCapacityManager
from croupier.capacity.metrics import LedgerWriteMetrics
from croupier.core.claims.claim import CardClaim
from croupier.core.ledger import ledger as ledgers
from croupier.core.ledger.ledger import HoldTerms
from croupier.core.model.card import Grant
from croupier.core.model.card_request import CardShares
from croupier.core.model.refusal import Refusal
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config
from croupier.kube.client.errors import KubeError, ServerError, TooManyRequests
from tests.proof.manager_env import QUICK
from tests.proof.processes import emit, log_to_stderr, read_command


@dataclass
class ClaimStats:
    """The results to report."""

    asked: int = 0
    yes: int = 0
    no: int = 0
    repeated: int = 0
    slowest: float = 0.0
    troubles: list[str] = field(default_factory=list)
    promised: dict[str, tuple[str, list[Any]]] = field(default_factory=dict)
    """The node and grant of every holder that ever got one."""
    live: dict[str, str] = field(default_factory=dict)
    """The node of every holder that is not released."""
    unknown: dict[str, str] = field(default_factory=dict)
    """The node of every claim with an unknown outcome."""


@dataclass
class ClaimSpec:
    holder: str
    wants: CardShares

    @property
    def size(self) -> int:
        return self.wants.cards * self.wants.percent


class ClaimWorker:
    """Keeps claims for about `budget` percent of cards, granted or refused."""

    def __init__(
        self, manager: CRDCapacityManager, options: Any, number: int, registry: CollectorRegistry
    ) -> None:
        self.manager = manager
        self.registry = registry
        self.account = ClaimStats()
        self.name = f"{options.name}-{number}"
        self._nodes: list[str] = options.nodes.split(",")
        self._budget: int = options.budget
        self._quota: int = options.requests
        self._shares = [int(share) for share in options.shares.split(",")]
        self._chance = random.Random(f"{options.seed}-{self.name}")  # noqa: S311  # reproducible, not secret
        self._at_once: int = options.at_once
        self._asking = 0
        """Percent of the running claims."""
        self._granted: list[ClaimSpec] = []
        self._waiting: list[ClaimSpec] = []

    async def trade(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._at_once):
                tasks.create_task(self._ask_on())

    async def close(self) -> None:
        """Release everything, including claims with an unknown outcome."""
        left = {**self.account.live, **self.account.unknown}
        releases = (partial(self.manager.release, holder, node) for holder, node in left.items())
        await asyncio.gather(*map(self._again, releases))
        self.account.live.clear()

    async def _ask_on(self) -> None:
        while self.account.asked < self._quota:
            self.account.asked += 1
            spec = self._wish(self.account.asked)
            while self._demand() + spec.size > self._budget and (self._granted or self._waiting):
                await self._drop()
            self._asking += spec.size
            try:
                await self._ask(spec)
            finally:
                self._asking -= spec.size

    def _wish(self, number: int) -> ClaimSpec:
        uid = UUID(int=self._chance.getrandbits(128))
        wants = CardShares(self._chance.choice((1, 1, 1, 2)), self._chance.choice(self._shares))
        return ClaimSpec(f"storm/{self.name}-{number}/{uid}", wants)

    def _demand(self) -> int:
        return self._asking + sum(spec.size for spec in (*self._granted, *self._waiting))

    async def _ask(self, spec: ClaimSpec) -> None:
        nodes = self._chance.sample(self._nodes, min(3, len(self._nodes)))
        for node in nodes:
            answer = await self._claim(node, spec)
            if answer is None:
                return
            if not isinstance(answer, Refusal):
                await self._accept(node, spec, answer)
                return
        self.account.no += 1
        self._waiting.append(spec)

    async def _claim(self, node: str, spec: ClaimSpec) -> Grant | Refusal | None:
        """None: the outcome is unknown."""
        terms = HoldTerms(until=datetime.now(UTC) + timedelta(hours=1))
        began = time.monotonic()
        try:
            return await self.manager.claim(node, CardClaim(spec.holder, (spec.wants,), terms))
        except KubeError as error:
            self.account.troubles.append(f"{type(error).__name__}: {error}")
            self.account.unknown[spec.holder] = node
            return None
        finally:
            self.account.slowest = max(self.account.slowest, time.monotonic() - began)

    async def _accept(self, node: str, spec: ClaimSpec, grant: Grant) -> None:
        account = self.account
        account.yes += 1
        account.promised[spec.holder] = node, [(part.card, part.share) for part in grant]
        account.live[spec.holder] = node
        fate = self._chance.random()
        if fate < 0.05:  # a retry, as after a lost answer
            again = await self._claim(node, spec)
            account.repeated += 1
            if again is not None and again != grant:
                account.troubles.append(f"{spec.holder} claimed twice and got {grant} and {again}")
        elif fate < 0.5:
            change = partial(ledgers.bind, holder=spec.holder)
            await self._again(partial(self.manager.amend, node, change, lazy=fate < 0.1))
        self._granted.append(spec)  # from now on it may be released

    async def _drop(self) -> None:
        """Drop a granted or a refused claim."""
        group = self._chance.choice([g for g in (self._granted, self._waiting) if g])
        spec = group.pop(self._chance.randrange(len(group)))
        node = self.account.live.get(spec.holder)
        if node is not None:
            await self._again(partial(self.manager.release, spec.holder, node))
            del self.account.live[spec.holder]

    async def _again(self, act: Any) -> None:
        """Retry until success; both actions are idempotent."""
        for pause in (0.05, 0.2, 0.5, 1, 2, 4, 8, 16):
            try:
                await act()
                return
            except KubeError as error:
                self.account.troubles.append(f"{type(error).__name__}: {error}")
                await asyncio.sleep(pause)
        raise AssertionError("an idempotent action failed for half a minute")


class FaultInjection:
    """Refuses half of `part` of the calls before execution (429) and fails the other half after it (503)."""

    def __init__(self, part: float, seed: str) -> None:
        self._part = part / 2
        self._chance = random.Random(seed)  # noqa: S311  # reproducible, not secret

    def permit(self) -> None:
        if self._chance.random() < self._part:
            raise TooManyRequests(429, "TooManyRequests", "too many requests, injected")

    def observe(self, _verb: str, _resource: str, code: int, _seconds: float) -> None:
        if code and self._chance.random() < self._part:
            raise ServerError(503, "ServiceUnavailable", "lost answer, injected")


@contextlib.asynccontextmanager
async def writer(options: Any, number: int) -> AsyncIterator[ClaimWorker]:
    """A worker with its own connection, watch and manager."""
    faults = FaultInjection(options.flaky, f"{options.seed}-{options.name}-{number}")
    async with api_client.connect(config.load(options.kubeconfig), observe=faults.observe) as connected:
        api = connected.fenced(faults.permit)
        store: Store[NodeReservation] = Store(kinds.NODE_RESERVATIONS)
        reflector = Reflector(api, store, rules=QUICK)
        following = asyncio.create_task(reflector.run())
        await reflector.synced()
        registry = CollectorRegistry()
        manager = CRDCapacityManager(api, store, metrics=LedgerWriteMetrics(registry))
        customer = ClaimWorker(manager, options, number, registry)
        try:
            yield customer
            await manager.finish()
        finally:
            following.cancel()


def _report(customer: ClaimWorker) -> dict[str, Any]:
    shown = vars(customer.account)
    writes = {
        name: int(customer.registry.get_sample_value(f"croupier_ledger_cas_{name}_total") or 0)
        for name in ("attempts", "conflicts")
    }
    return {"name": customer.name, **shown, **writes, "troubles": customer.account.troubles[:50]}


async def start(options: Any) -> None:
    async with contextlib.AsyncExitStack() as stack:
        customers = [await stack.enter_async_context(writer(options, n)) for n in range(options.writers)]
        emit("ready")
        await read_command()
        await asyncio.gather(*(customer.trade() for customer in customers))
        emit([_report(customer) for customer in customers])
        await read_command()
        await asyncio.gather(*(customer.close() for customer in customers))
        emit([_report(customer) for customer in customers])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--nodes", required=True)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--writers", type=int, default=1)
    parser.add_argument("--requests", type=int, required=True, help="number of claims of each writer")
    parser.add_argument(
        "--budget", type=int, required=True, help="percent of cards that each writer claims at a time"
    )
    parser.add_argument("--shares", default="10,20,25,40,50,75,100", help="possible percentages of a card")
    parser.add_argument("--at-once", type=int, default=8, help="concurrent claims of a writer")
    parser.add_argument("--flaky", type=float, default=0.0, help="fraction of the calls that fail")
    log_to_stderr()
    asyncio.run(start(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
