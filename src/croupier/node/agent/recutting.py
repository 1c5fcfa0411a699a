"""Repartitions one card: destroy, set MIG mode, create, with a deadline, and a rollback if it fails.

The agent may be killed after any step. A journal keeps the previous partitioning until the change has
succeeded or was rolled back, so that the next agent can finish it or roll it back.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import structlog

from croupier.core.cards import cutting, mig
from croupier.core.cards.cutting import Create, Cut, Destroy, Made, Mode, Step
from croupier.core.cards.mig import Layout
from croupier.core.ledgers.ledger import Refused
from croupier.kube.clock import Clock
from croupier.node.agent.recutting_journal import Journal, MemoryJournal
from croupier.node.cards.cards import CardError, Cards, Seen

DEADLINE: Final = 120.0
"""The longest duration of a change in seconds, and again of its rollback."""

_ROUNDS: Final = 3
_Plan: TypeAlias = Callable[[Cut], tuple[Step, ...]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Applied:
    """The card has the requested partitioning, verified by an inspection."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The change failed; `sentence` says why. `restored` means that the old partitioning is back."""

    sentence: str
    restored: bool


Outcome: TypeAlias = Applied | Failed


def cut_of(card: Seen) -> Cut:
    return Cut(card.mig_enabled, tuple(Made(slot.piece, slot.uuid) for slot in card.slots))


class Recutter:
    """Repartitions one card at a time. The caller must make sure that the card has no holders."""

    def __init__(
        self, cards: Cards, clock: Clock, *, deadline: float = DEADLINE, journal: Journal | None = None
    ) -> None:
        self._cards = cards
        self._clock = clock
        self._deadline = deadline
        self._journal = MemoryJournal() if journal is None else journal
        self._one_at_a_time = asyncio.Lock()

    def unfinished(self) -> frozenset[str]:
        """The addresses of cards whose change was interrupted or could not be rolled back."""
        return self._journal.addresses()

    async def apply(self, card: Seen, target: Layout) -> Outcome:
        """Repartition the card to `target` from any state."""
        placed = mig.place(card.kinds, target)
        if isinstance(placed, Refused):
            layout = mig.spelled(target)
            return Failed(f"{_name(card)} cannot be partitioned into {layout}: {placed}", restored=True)
        async with self._one_at_a_time:
            return await self._change(card, partial(cutting.steps, wanted=placed), mig.spelled(target))

    async def recover(self, card: Seen) -> Outcome:
        """Roll back an interrupted change. Does nothing for other cards."""
        async with self._one_at_a_time:
            old = self._journal.before(card.address, card.uuid)
            if old is None:
                self._journal.forget(card.address)
                return Applied()
            return await self._change(card, _back(old), "its old layout")

    async def _change(self, card: Seen, plan: _Plan, into: str) -> Outcome:
        try:
            now = cut_of(await self._find(card))
        except CardError as error:
            return Failed(f"{_name(card)} cannot be partitioned into {into}: {error}", restored=False)
        if not plan(now):
            self._journal.forget(card.address)
            return Applied()
        old = self._journal.before(card.address, card.uuid) or now
        self._journal.remember(card.address, card.uuid, old)
        try:
            await self._within(self._go(card, plan))
        except CardError as error:
            why = f"{_name(card)} could not be partitioned into {into}: {error}"
            return await self._restore(card, old, why)
        self._journal.forget(card.address)
        return Applied()

    async def _restore(self, card: Seen, old: Cut, why: str) -> Failed:
        log.warning("repartitioning a card failed; rolling back", address=card.address, reason=why)
        try:
            await self._within(self._go(card, _back(old)))
        except CardError as error:
            return Failed(f"{why}; its old layout could not be restored either: {error}", restored=False)
        self._journal.forget(card.address)
        return Failed(f"{why}; its old layout is restored", restored=True)

    async def _go(self, card: Seen, plan: _Plan) -> None:
        """Carry out the steps until an inspection of the card leaves none."""
        for _ in range(_ROUNDS):
            todo = plan(cut_of(await self._find(card)))
            if not todo:
                return
            for step in todo:
                await self._do(card, step)
        if plan(cut_of(await self._find(card))):
            raise CardError("the driver accepted every step, but the card has another partitioning")

    async def _do(self, card: Seen, step: Step) -> None:
        try:
            match step:
                case Mode(on=on):
                    await self._cards.enable_mig(card.address, on)
                case Destroy(made=made):
                    await self._cards.destroy(card.address, made.uuid)
                case Create(piece=piece):
                    await self._cards.create(card.address, piece)
        except CardError as error:
            raise CardError(f"could not {step}: {error}") from error

    async def _find(self, card: Seen) -> Seen:
        current = (await self._cards.look()).at(card.address)
        if current is None:
            raise CardError("the card is not on the PCI bus")
        return current

    async def _within(self, work: Coroutine[None, None, None]) -> None:
        """Apply the deadline with the injected clock, so that tests need not wait for it."""
        working = asyncio.ensure_future(work)
        alarm = asyncio.ensure_future(self._clock.sleep(self._deadline))
        try:
            await asyncio.wait({working, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise CardError(f"it took longer than {self._deadline:g} s")
            working.result()
        finally:
            for task in (working, alarm):
                task.cancel()
            await asyncio.gather(working, alarm, return_exceptions=True)


def _back(old: Cut) -> _Plan:
    return partial(cutting.towards, enabled=old.enabled, wanted=old.pieces)


def _name(card: Seen) -> str:
    return f"card {card.index} ({card.address})"
