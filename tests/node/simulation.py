"""Simulated cards in a directory of their own, and time that passes only when told."""

import asyncio
import heapq
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from croupier.kube.clock import SystemClock
from croupier.node.cards import simulated_plan
from croupier.node.cards.cards import Cards, Seen
from croupier.node.cards.simulated import Files, SimulatedCards

NODE = "node-1"
FIRST = "0000:10:00.0"
SECOND = "0000:11:00.0"


@dataclass
class HandClock:
    """Whoever sleeps wakes when the test lets time pass."""

    seconds: float = 0.0
    _numbers: "count[int]" = field(default_factory=count)
    _sleepers: list[tuple[float, int, asyncio.Future[None]]] = field(default_factory=list)

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.seconds + seconds, next(self._numbers), wake))
        await wake

    async def let_pass(self, seconds: float) -> None:
        end = self.seconds + seconds
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.seconds, _, wake = heapq.heappop(self._sleepers)
            if not wake.done():
                wake.set_result(None)
            await _settle()
        self.seconds = end


class Later(SystemClock):
    """The time of the machine; it can be put forward, never back."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


async def _settle() -> None:
    """Nothing here waits for anything outside the loop, so a few turns are enough."""
    for _ in range(50):
        await asyncio.sleep(0)


@dataclass
class Bench:
    """A node with simulated cards whose agent may be started again and again."""

    folder: Path
    plan: str = "SIM-70GB:2"
    clock: HandClock = field(default_factory=HandClock)

    @property
    def state(self) -> Path:
        return self.folder / "cards.json"

    @property
    def faults(self) -> Path:
        return self.folder / "faults.yaml"

    @property
    def cdi(self) -> Path:
        return self.folder / "cdi"

    async def start(self) -> SimulatedCards:
        """As a new process would find them."""
        cards = SimulatedCards(
            NODE,
            simulated_plan.read(self.plan),
            clock=self.clock,
            files=Files(self.state, self.faults, self.cdi),
        )
        await cards.open()
        return cards

    def suffer(self, **cards: dict[str, object]) -> None:
        """`suffer(card0={"xid": 79})`; without arguments all trouble ends."""
        named = {name.removeprefix("card"): fault for name, fault in cards.items()}
        self.faults.write_text(json.dumps({"cards": named}))


async def seen(cards: Cards, address: str = FIRST) -> Seen:
    found = (await cards.look()).at(address)
    assert found is not None, f"no card at {address}"
    return found
