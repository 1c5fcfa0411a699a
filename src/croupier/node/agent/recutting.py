"""Cutting one card anew: destroy, mode, create, within a deadline, and back to the old layout when it fails.

It may be killed after any step. What the card was like before is kept in a journal until the change has
ended well or was undone, so that whoever comes next goes on to the target, or back.
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
"""Seconds a change may take, and undoing it as long again."""

_ROUNDS: Final = 3
_Plan: TypeAlias = Callable[[Cut], tuple[Step, ...]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Applied:
    """The card is cut as asked; it was looked at."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It is not; `sentence` says why. `restored`: it is as it was before."""

    sentence: str
    restored: bool


Outcome: TypeAlias = Applied | Failed


def cut_of(card: Seen) -> Cut:
    return Cut(card.mig_enabled, tuple(Made(slot.piece, slot.uuid) for slot in card.slots))


class Recutter:
    """One card at a time. The card must be free: nothing here asks who holds it."""

    def __init__(
        self, cards: Cards, clock: Clock, *, deadline: float = DEADLINE, journal: Journal | None = None
    ) -> None:
        self._cards = cards
        self._clock = clock
        self._deadline = deadline
        self._journal = MemoryJournal() if journal is None else journal
        self._one_at_a_time = asyncio.Lock()

    def unfinished(self) -> frozenset[str]:
        """Addresses of cards whose change was cut off, or could not be undone."""
        return self._journal.addresses()

    async def apply(self, card: Seen, target: Layout) -> Outcome:
        """Cuts the card as asked, from whatever state it is in."""
        wanted = mig.place(card.kinds, target)
        if isinstance(wanted, Refused):
            return Failed(f"{_name(card)} cannot be cut into {mig.spelled(target)}: {wanted}", restored=True)
        async with self._one_at_a_time:
            return await self._change(card, partial(cutting.steps, wanted=wanted), mig.spelled(target))

    async def recover(self, card: Seen) -> Outcome:
        """Puts a card whose change was cut off back to how it was before; nothing to do for any other."""
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
            return Failed(f"{_name(card)} cannot be cut into {into}: {error}", restored=False)
        if not plan(now):
            self._journal.forget(card.address)
            return Applied()
        old = self._journal.before(card.address, card.uuid) or now
        self._journal.remember(card.address, card.uuid, old)
        try:
            await self._within(self._go(card, plan))
        except CardError as error:
            return await self._restore(card, old, f"{_name(card)} could not be cut into {into}: {error}")
        self._journal.forget(card.address)
        return Applied()

    async def _restore(self, card: Seen, old: Cut, why: str) -> Failed:
        log.warning("a card could not be cut as asked and is put back", address=card.address, reason=why)
        try:
            await self._within(self._go(card, _back(old)))
        except CardError as error:
            return Failed(f"{why}; nor could its old layout be restored: {error}", restored=False)
        self._journal.forget(card.address)
        return Failed(f"{why}; its old layout is restored", restored=True)

    async def _go(self, card: Seen, plan: _Plan) -> None:
        """Until a look at the card says that nothing is left to do."""
        for _ in range(_ROUNDS):
            todo = plan(cut_of(await self._find(card)))
            if not todo:
                return
            for step in todo:
                await self._do(card, step)
        if plan(cut_of(await self._find(card))):
            raise CardError("the driver said yes to every step, yet the card is cut otherwise")

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
        found = (await self._cards.look()).at(card.address)
        if found is None:
            raise CardError("it is not there")
        return found

    async def _within(self, work: Coroutine[None, None, None]) -> None:
        """The deadline is by the clock we were given, so that tests need not wait for it."""
        working = asyncio.ensure_future(work)
        alarm = asyncio.ensure_future(self._clock.sleep(self._deadline))
        try:
            await asyncio.wait({working, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise CardError(f"it was not done within {self._deadline:g} s")
            working.result()
        finally:
            for task in (working, alarm):
                task.cancel()
            await asyncio.gather(working, alarm, return_exceptions=True)


def _back(old: Cut) -> _Plan:
    return partial(cutting.towards, enabled=old.enabled, wanted=old.pieces)


def _name(card: Seen) -> str:
    return f"card {card.index} ({card.address})"
