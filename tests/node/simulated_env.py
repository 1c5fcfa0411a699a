"""Simulated cards in their own folder, and a clock that tests control."""

import asyncio
import heapq
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

from croupier.core.model.gpu_card import GpuCard
from croupier.kube.client.clock import SystemClock
from croupier.node.cards import simulated_spec
from croupier.node.cards.card_driver import CardDriver
from croupier.node.cards.simulated import SimulatedCards, SimulatedFiles

NODE = "node-1"
FIRST = "0000:10:00.0"
SECOND = "0000:11:00.0"


@dataclass
class ManualClock:
    """A sleep ends when the test lets time pass."""

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
        await _run_ready_tasks()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.seconds, _, wake = heapq.heappop(self._sleepers)
            if not wake.done():
                wake.set_result(None)
            await _run_ready_tasks()
        self.seconds = end


class OffsetClock(SystemClock):
    """The system clock plus an offset."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


async def _run_ready_tasks() -> None:
    """Run the event loop. Nothing waits for anything outside of it, so a few iterations are enough."""
    for _ in range(50):
        await asyncio.sleep(0)


@dataclass
class SimulatedCardsEnv:
    """A node with simulated cards. `start` simulates a restart of the agent."""

    folder: Path
    plan: str = "SIM-70GB:2"
    clock: ManualClock = field(default_factory=ManualClock)

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
        """The cards as a new process finds them."""
        cards = SimulatedCards(
            NODE,
            simulated_spec.read(self.plan),
            clock=self.clock,
            files=SimulatedFiles(self.state, self.faults, self.cdi),
        )
        await cards.open()
        return cards

    def suffer(self, **cards: dict[str, object]) -> None:
        """Replace the injected faults, for example `suffer(card0={"xid": 79})`."""
        named = {name.removeprefix("card"): fault for name, fault in cards.items()}
        self.faults.write_text(json.dumps({"cards": named}))


async def observed_card(cards: CardDriver, address: str = FIRST) -> GpuCard:
    card = (await cards.inspect()).at(address)
    assert card is not None, f"no card at {address}"
    return card
