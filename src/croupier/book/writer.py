"""The writer of one node's ledger: whoever wants a change queues here, and many share one write.

While a write is under way the next changes gather; then all of them are decided together and
committed in one PUT guarded by resourceVersion. On a conflict the object is read live and everything
is decided again; after a lost reply too, which is harmless because every change is keyed by holder.

A caller that gives up before its turn is forgotten. If its change is under way already, it stays: a
claim then waits for its TTL. To release it here would race with the caller's own retry, which has
the same key and may have been told yes.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from croupier.api import kinds
from croupier.book import fold, page
from croupier.book.fold import Amend, Answer, Folded, Step, Take
from croupier.book.manager import UnknownNode, missing
from croupier.book.metrics import Gauge
from croupier.book.page import Page
from croupier.core.ledgers.ledger import Ledger
from croupier.kube.backoff import Backoff
from croupier.kube.client import Client, Deletion
from croupier.kube.clock import Clock
from croupier.kube.errors import (
    AlreadyExists,
    Conflict,
    Invalid,
    KubeError,
    NotFound,
    ServerError,
    Unreachable,
)

log = structlog.get_logger(__name__)

NODE_RESERVATIONS = kinds.NODE_RESERVATIONS.raw
LONGEST_PAUSE = 1.0
"""Seconds between two tries at most, while writes are quick."""
CROWD = 32
"""Or so many times what a write takes: there may be as many others, and each needs its turn."""
LOST = (Unreachable, ServerError)
"""Errors after which a write may or may not have been carried out."""


class Contended(KubeError):
    """Others changed the ledger each time before we could; nothing of ours was committed."""


@dataclass(frozen=True, slots=True)
class Rules:
    tries: int = 40
    """Writes before a batch is given up."""
    lost: int = 3
    """Of them, writes whose reply may get lost."""
    backoff: Backoff = field(default_factory=lambda: Backoff(0.004, factor=1.6, most=0.4, jitter=1.0))
    linger: float = 2.0
    """Seconds a lazy change waits for company."""
    gather: float = 0.0
    """Seconds a write waits for more to share it, while claims come faster than that."""
    doubt: float = 2.0
    """Seconds the watch has to show what we are unsure of, before it is read."""


class Traffic:
    """How close claims follow each other, on whichever node: whoever comes alone need not wait for others."""

    def __init__(self) -> None:
        self._last = self._before = float("-inf")

    def came(self, now: float) -> None:
        self._before, self._last = self._last, now

    def is_dense(self, now: float, gap: float) -> bool:
        """Whether the last two came within `gap` seconds of each other, and not long ago."""
        return self._last - self._before < gap and now - self._last < gap


@dataclass(frozen=True, slots=True)
class Desk:
    """What all writers of a process share."""

    api: Client
    clock: Clock
    chance: Callable[[], float]
    gauge: Gauge
    rules: Rules
    changed: Callable[[Page], None]
    """Told whenever a page may look different."""
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def company(self) -> float:
        """Seconds to wait for others before a write."""
        gap, now = self.rules.gather, self.clock.monotonic()
        return gap if gap and self.traffic.is_dense(now, gap) else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    step: Step
    future: "asyncio.Future[Any]"


class Writer:
    def __init__(self, page: Page, desk: Desk) -> None:
        self._page = page
        self._desk = desk
        self._queue: list[Waiting] = []
        self._batch: Sequence[Waiting] = ()
        self._turn = asyncio.Lock()
        self._working: asyncio.Task[None] | None = None
        self._lingering: asyncio.Task[None] | None = None
        self._due = 0.0
        """When that ends, by the monotonic clock."""
        self._ending = False
        self._took = 0.0
        """Seconds the last write took."""

    @property
    def busy(self) -> bool:
        return bool(self._queue) or self._turn.locked() or self._working is not None

    async def submit(self, step: Step, *, lazy: bool = False) -> Any:
        """What becomes of `step`, once that is committed."""
        return await self._enqueue(step, within=self._desk.rules.linger if lazy else 0.0)

    def make_sure(self) -> None:
        """Read the ledger live before long, unless the watch has resolved our doubts by then."""
        if not (self.busy or self._ending):
            self._enqueue(Amend(_unchanged), within=self._desk.rules.doubt).add_done_callback(_ignore)

    async def finish(self) -> None:
        """Write what is queued, at once, and rest."""
        self._ending = True
        if self._queue:
            self._start()
        if self._working is not None:
            await asyncio.wait([self._working])

    async def open(self, ledger: Ledger) -> Ledger:
        async with self._turn:
            for _ in range(self._desk.rules.lost):
                if (known := self._page.committed) is not None:
                    return known
                body = page.first(self._page.node, ledger)
                try:
                    await self._exchange(self._desk.api.create(NODE_RESERVATIONS, body))
                except (AlreadyExists, *LOST):
                    await self._read()
        if (known := self._page.committed) is None:
            raise Contended(f"the ledger of {self._page.node} could not be opened; try again")
        return known

    async def close(self) -> bool:
        async with self._turn:
            for _ in range(self._desk.rules.tries):
                await self._know()
                if self._page.mine is None:
                    return True
                if self._page.mine.ledger.holders():
                    return False
                if await self._delete():
                    return True
        raise Contended(f"the ledger of {self._page.node} changes all the time; close it again later")

    def _enqueue(self, step: Step, *, within: float) -> "asyncio.Future[Any]":
        """To be written at once, or with the next write, but within so many seconds."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(Waiting(step, future))
        if isinstance(step, Take):
            self._desk.traffic.came(self._desk.clock.monotonic())
            self._page.expect(step)
            self._desk.changed(self._page)
        if not within:
            self._start()
        elif self._working is None:
            self._linger(within)
        return future

    def _linger(self, seconds: float) -> None:
        due = self._desk.clock.monotonic() + seconds
        if self._lingering is None or due < self._due:
            self._hurry()
            self._lingering, self._due = asyncio.create_task(self._start_after(seconds)), due

    async def _start_after(self, seconds: float) -> None:
        await self._desk.clock.sleep(seconds)
        self._lingering = None
        self._start()

    def _hurry(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None

    def _start(self) -> None:
        self._hurry()
        if self._working is None:
            self._working = asyncio.create_task(self._work())

    async def _work(self) -> None:
        """Until the queue is empty; an idle node has no task."""
        try:
            while self._queue:
                if not self._ending and (wait := self._desk.company):
                    await self._desk.clock.sleep(wait)
                self._batch, self._queue = self._queue, []
                async with self._turn:
                    await self._settle(self._batch)
        finally:
            for waiting in (*self._batch, *self._queue):
                waiting.future.cancel()
            self._batch, self._queue, self._working = (), [], None
        if self._page.sight.doubtful:
            self.make_sure()

    async def _settle(self, batch: Sequence[Waiting]) -> None:
        """Answer everyone in the batch; whatever goes wrong is the answer then."""
        try:
            await self._commit(batch)
        except Invalid as refusal:
            await self._one_by_one(batch, refusal)
        except Exception as error:  # the waiters hear it, and the writer goes on for the next
            self._fail(batch, error)

    async def _one_by_one(self, batch: Sequence[Waiting], refusal: Invalid) -> None:
        """One of them makes an object the API server refuses; the others must not suffer for it."""
        if len(batch) == 1:
            self._fail(batch, refusal)
            return
        for waiting in batch:
            await self._settle([waiting])

    async def _commit(self, batch: Sequence[Waiting]) -> None:
        lost = 0
        for failures in range(1, self._desk.rules.tries + 1):
            await self._know()
            waiting = [one for one in batch if not one.future.done()]
            folded = self._fold(waiting)
            try:
                await self._put(folded, len(waiting))
            except (Conflict, NotFound):
                self._page.sight.doubt()
                self._desk.gauge.conflicted()
                await self._pause(failures)
            except LOST:
                self._page.sight.doubt()
                if (lost := lost + 1) >= self._desk.rules.lost:
                    raise
            else:
                self._answer(waiting, folded)
                return
        raise Contended(
            f"others changed the ledger of {self._page.node} {self._desk.rules.tries} times in a row "
            "before this change could be written; try again"
        )

    def _fold(self, waiting: Sequence[Waiting]) -> Folded | None:
        """None when the node has no ledger."""
        if self._page.mine is None:
            return None
        return fold.fold(self._page.mine.ledger, [one.step for one in waiting])

    async def _put(self, folded: Folded | None, changes: int) -> None:
        """Nothing to write is the cheapest write."""
        mine = self._page.mine
        if folded is None or mine is None or folded.ledger == mine.ledger:
            return
        began = self._desk.clock.monotonic()
        body = page.written(mine, folded.ledger)
        try:
            await self._exchange(self._desk.api.update(NODE_RESERVATIONS, body))
        finally:
            self._took = self._desk.clock.monotonic() - began
            self._desk.gauge.attempted(changes, self._took)

    def _answer(self, batch: Sequence[Waiting], folded: Folded | None) -> None:
        answers = folded.answers if folded is not None else (None,) * len(batch)
        for waiting, answer in zip(batch, answers, strict=True):
            if not waiting.future.done():
                self._tell(waiting, answer)
        self._arrived()

    def _tell(self, waiting: Waiting, answer: Answer) -> None:
        known = self._page.mine
        match waiting.step:
            case _ if isinstance(answer, Exception):
                waiting.future.set_exception(answer)
            case Amend() if known is None:
                waiting.future.set_exception(UnknownNode(self._page.node))
            case Amend() if known is not None:
                waiting.future.set_result(known.ledger)
            case Take() if known is None:
                waiting.future.set_result(missing(self._page.node))
            case _:
                waiting.future.set_result(answer)

    def _fail(self, batch: Sequence[Waiting], error: Exception) -> None:
        for waiting in batch:
            if not waiting.future.done():
                waiting.future.set_exception(error)
        self._arrived()

    def _arrived(self) -> None:
        """What was answered is not on its way any more."""
        self._page.expect_only(w.step for w in (*self._batch, *self._queue) if not w.future.done())
        self._desk.changed(self._page)

    async def _know(self) -> None:
        if self._page.sight.must_read:
            await self._read()

    async def _read(self) -> None:
        try:
            await self._exchange(self._desk.api.get(NODE_RESERVATIONS, self._page.node))
        except NotFound:
            self._page.absent()

    async def _delete(self) -> bool:
        """True when it is gone; False when it changed meanwhile, or nobody knows."""
        if self._page.mine is None:
            return True
        state = self._page.mine.state
        how = Deletion(uid=state.uid, resource_version=state.version)
        self._page.sight.ask()
        try:
            await self._desk.api.delete(NODE_RESERVATIONS, self._page.node, how=how)
        except NotFound:
            pass
        except (Conflict, *LOST):
            self._page.sight.fail()
            self._page.sight.doubt()
            return False
        self._page.absent()
        self._desk.changed(self._page)
        return True

    async def _exchange(self, request: Any) -> None:
        """Any request that is answered with the object."""
        self._page.sight.ask()
        try:
            raw = await request
        except BaseException:
            self._page.sight.fail()
            raise
        self._page.answer(raw, self._desk.clock.monotonic())
        self._desk.changed(self._page)

    async def _pause(self, failures: int) -> None:
        """Longer when writes take longer: others need that time too, and a batch only grows meanwhile.

        Chance comes last: if many were cut to the same longest pause, all would come back at once.
        """
        backoff = self._desk.rules.backoff
        slow = max(1.0, self._took / backoff.first)
        longest = min(backoff.delay(failures, 1.0) * slow, max(LONGEST_PAUSE, CROWD * self._took))
        await self._desk.clock.sleep(longest * self._desk.chance())


def _unchanged(ledger: Ledger) -> Ledger:
    return ledger


def _ignore(future: "asyncio.Future[Any]") -> None:
    """Nobody waits for it; if it failed, the doubt stays and it is tried again."""
    if not future.cancelled():
        future.exception()
