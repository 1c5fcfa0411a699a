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

from croupier.core.cards import partitioning
from croupier.core.cards.partitioning import (
    CreateDevice,
    DestroyDevice,
    MigState,
    PartitionStep,
    SetMigMode,
)
from croupier.core.model import mig
from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.mig import Layout
from croupier.core.model.refusal import Refusal
from croupier.kube.client.clock import Clock
from croupier.node.agent.repartition_journal import RepartitionJournal
from croupier.node.cards.card_driver import CardDriver, CardError

DEADLINE: Final = 120.0
"""The longest duration of a change in seconds, and again of its rollback."""

_ATTEMPTS: Final = 3
_Plan: TypeAlias = Callable[[MigState], tuple[PartitionStep, ...]]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Repartitioned:
    """The card has the requested partitioning, verified by an inspection."""


@dataclass(frozen=True, slots=True)
class RepartitionFailed:
    """The change failed; `sentence` says why. `restored` means that the old partitioning is back."""

    sentence: str
    restored: bool


RepartitionResult: TypeAlias = Repartitioned | RepartitionFailed


def partitioning_of(card: GpuCard) -> MigState:
    return MigState(card.mig_enabled, card.slots)


class Repartitioner:
    """Repartitions one card at a time. The caller must make sure that the card has no holders."""

    def __init__(
        self,
        cards: CardDriver,
        clock: Clock,
        *,
        deadline: float = DEADLINE,
        journal: RepartitionJournal | None = None,
    ) -> None:
        self._cards = cards
        self._clock = clock
        self._deadline = deadline
        self._journal = journal or RepartitionJournal()
        self._one_at_a_time = asyncio.Lock()

    def unfinished(self) -> frozenset[str]:
        """The addresses of cards whose change was interrupted or could not be rolled back."""
        return self._journal.addresses()

    async def apply(self, card: GpuCard, target: Layout) -> RepartitionResult:
        """Repartition the card to `target` from any state."""
        placed = mig.place(card.kinds, target)
        if isinstance(placed, Refusal):
            layout = mig.layout_text(target)
            return RepartitionFailed(
                f"{_name(card)} cannot be partitioned into {layout}: {placed}", restored=True
            )
        async with self._one_at_a_time:
            return await self._change(
                card, partial(partitioning.steps, wanted=placed), mig.layout_text(target)
            )

    async def recover(self, card: GpuCard) -> RepartitionResult:
        """Roll back an interrupted change. Does nothing for other cards."""
        async with self._one_at_a_time:
            old = self._journal.before(card.address, card.uuid)
            if old is None:
                self._journal.forget(card.address)
                return Repartitioned()
            return await self._change(card, _restore_plan(old), "its old layout")

    async def _change(self, card: GpuCard, plan: _Plan, into: str) -> RepartitionResult:
        try:
            now = partitioning_of(await self._find(card))
        except CardError as error:
            return RepartitionFailed(
                f"{_name(card)} cannot be partitioned into {into}: {error}", restored=False
            )
        if not plan(now):
            self._journal.forget(card.address)
            return Repartitioned()
        old = self._journal.before(card.address, card.uuid) or now
        self._journal.remember(card.address, card.uuid, old)
        try:
            await self._within(self._go(card, plan))
        except CardError as error:
            why = f"{_name(card)} could not be partitioned into {into}: {error}"
            return await self._restore(card, old, why)
        self._journal.forget(card.address)
        return Repartitioned()

    async def _restore(self, card: GpuCard, old: MigState, why: str) -> RepartitionFailed:
        log.warning(f"card {card.address} gets its previous layout back: {why}", address=card.address)
        try:
            await self._within(self._go(card, _restore_plan(old)))
        except CardError as error:
            return RepartitionFailed(
                f"{why}; its old layout could not be restored either: {error}", restored=False
            )
        self._journal.forget(card.address)
        return RepartitionFailed(f"{why}; its old layout is restored", restored=True)

    async def _go(self, card: GpuCard, plan: _Plan) -> None:
        """Carry out the steps until an inspection of the card leaves none."""
        for _ in range(_ATTEMPTS):
            todo = plan(partitioning_of(await self._find(card)))
            if not todo:
                return
            for step in todo:
                await self._do(card, step)
        if plan(partitioning_of(await self._find(card))):
            raise CardError("the driver accepted every step, but the card has another partitioning")

    async def _do(self, card: GpuCard, step: PartitionStep) -> None:
        try:
            match step:
                case SetMigMode(on=on):
                    await self._cards.enable_mig(card.address, on)
                case DestroyDevice(made=made):
                    await self._cards.destroy(card.address, made.uuid)
                case CreateDevice(placement=piece):
                    await self._cards.create(card.address, piece)
        except CardError as error:
            raise CardError(f"could not {step}: {error}") from error

    async def _find(self, card: GpuCard) -> GpuCard:
        current = (await self._cards.inspect()).at(card.address)
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


def _restore_plan(old: MigState) -> _Plan:
    return partial(partitioning.steps_to, enabled=old.enabled, wanted=old.placements)


def _name(card: GpuCard) -> str:
    return f"card {card.index} ({card.address})"
