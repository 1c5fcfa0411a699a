"""The writer of one node's ledger: changes are queued here, and many of them share one write.

Changes that arrive during a write form the next batch, which is decided together and committed in one PUT
with the resourceVersion as precondition. After a conflict or a lost reply the object is read live and the
batch is decided again; repetition is harmless because every change is keyed by holder.

A change whose caller gives up while it is queued is dropped. A change that is already being written stays: a
claim then expires after its TTL. Releasing it here would race with the caller's retry, which has the same
key and may have been granted.
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
"""Maximum seconds between two attempts if writes are fast."""
CROWD = 32
"""Otherwise the maximum is this many write durations, one for each possible concurrent writer."""
LOST = (Unreachable, ServerError)
"""Errors after which the outcome of a write is unknown."""


class Contended(KubeError):
    """Other processes changed the ledger before every attempt; nothing was committed."""


@dataclass(frozen=True, slots=True)
class Rules:
    tries: int = 40
    """Maximum number of attempts per batch."""
    lost: int = 3
    """Maximum number of attempts with an unknown outcome."""
    backoff: Backoff = field(default_factory=lambda: Backoff(0.004, factor=1.6, most=0.4, jitter=1.0))
    linger: float = 2.0
    """Seconds that a lazy change waits to share a write."""
    gather: float = 0.0
    """Seconds that a write waits for more changes, while claims arrive faster than that."""
    doubt: float = 2.0
    """Seconds to wait for the watch to resolve an uncertain version before a live read."""


class Traffic:
    """The arrival rate of claims on all nodes: a single claim must not wait for others."""

    def __init__(self) -> None:
        self._last = self._before = float("-inf")

    def came(self, now: float) -> None:
        self._before, self._last = self._last, now

    def is_dense(self, now: float, gap: float) -> bool:
        """Whether the last two claims arrived within `gap` seconds, and the last one less than `gap` ago."""
        return self._last - self._before < gap and now - self._last < gap


@dataclass(frozen=True, slots=True)
class Desk:
    """The dependencies that all writers of a process share."""

    api: Client
    clock: Clock
    chance: Callable[[], float]
    gauge: Gauge
    rules: Rules
    changed: Callable[[Page], None]
    """Called when a cached ledger may have changed."""
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def company(self) -> float:
        """Seconds to wait for more changes before a write."""
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
        """When the lazy flush is due, by the monotonic clock."""
        self._ending = False
        self._took = 0.0
        """Duration of the last write in seconds."""

    @property
    def busy(self) -> bool:
        return bool(self._queue) or self._turn.locked() or self._working is not None

    async def submit(self, step: Step, *, lazy: bool = False) -> Any:
        """Queue the change and return its result after the commit."""
        return await self._enqueue(step, within=self._desk.rules.linger if lazy else 0.0)

    def make_sure(self) -> None:
        """Schedule a live read, unless the watch resolves the uncertain version first."""
        if not (self.busy or self._ending):
            self._enqueue(Amend(_unchanged), within=self._desk.rules.doubt).add_done_callback(_ignore)

    async def finish(self) -> None:
        """Write all queued changes at once."""
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
        raise Contended(f"the ledger of {self._page.node} keeps changing; try to close it again later")

    def _enqueue(self, step: Step, *, within: float) -> "asyncio.Future[Any]":
        """Queue a change to be written within `within` seconds; 0: at once."""
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
        """Write batches until the queue is empty; an idle node has no task."""
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
        """Resolve every change in the batch; an error becomes its result."""
        try:
            await self._commit(batch)
        except Invalid as refusal:
            await self._one_by_one(batch, refusal)
        except Exception as error:  # the callers get the error, and the writer continues
            self._fail(batch, error)

    async def _one_by_one(self, batch: Sequence[Waiting], refusal: Invalid) -> None:
        """Write the changes separately, because the API server rejects one of them as invalid."""
        if len(batch) == 1:
            self._fail(batch, refusal)
            return
        for waiting in batch:
            await self._settle([waiting])

    async def _commit(self, batch: Sequence[Waiting]) -> None:
        lost = 0
        for failures in range(1, self._desk.rules.tries + 1):
            await self._know()
            waiting = [change for change in batch if not change.future.done()]
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
            f"other processes changed the ledger of {self._page.node} {self._desk.rules.tries} times "
            "before this change could be written; try again"
        )

    def _fold(self, waiting: Sequence[Waiting]) -> Folded | None:
        """None if the node has no ledger."""
        if self._page.mine is None:
            return None
        return fold.fold(self._page.mine.ledger, [change.step for change in waiting])

    async def _put(self, folded: Folded | None, changes: int) -> None:
        """Write the ledger if it changed."""
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
        """Remove resolved changes from the uncommitted claims."""
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
        """True if the object is deleted; False if it changed or the outcome is unknown."""
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
        """Send a request that is answered with the object."""
        self._page.sight.ask()
        try:
            raw = await request
        except BaseException:
            self._page.sight.fail()
            raise
        self._page.answer(raw, self._desk.clock.monotonic())
        self._desk.changed(self._page)

    async def _pause(self, failures: int) -> None:
        """Back off in proportion to the duration of writes, because other writers need that time, too.

        The jitter is applied last: many writers at the same maximum would otherwise retry at once.
        """
        backoff = self._desk.rules.backoff
        slow = max(1.0, self._took / backoff.first)
        longest = min(backoff.delay(failures, 1.0) * slow, max(LONGEST_PAUSE, CROWD * self._took))
        await self._desk.clock.sleep(longest * self._desk.chance())


def _unchanged(ledger: Ledger) -> Ledger:
    return ledger


def _ignore(future: "asyncio.Future[Any]") -> None:
    """Retrieve the exception: no caller waits, and an unresolved version is tried again."""
    if not future.cancelled():
        future.exception()
