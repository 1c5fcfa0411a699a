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
from croupier.capacity import batching, cached_ledger
from croupier.capacity.batching import AmendChange, BatchChange, BatchResult, ChangeResult, ClaimChange
from croupier.capacity.cached_ledger import CachedLedger
from croupier.capacity.manager import UnknownNode, unknown_node
from croupier.capacity.metrics import LedgerWriteMetrics
from croupier.core.ledger.ledger import Ledger
from croupier.kube.client.api_client import Client, DeleteOptions
from croupier.kube.client.backoff import Backoff
from croupier.kube.client.clock import Clock
from croupier.kube.client.errors import (
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
MAX_PAUSE = 1.0
"""Maximum seconds between two attempts if writes are fast."""
ASSUMED_CONTENDERS = 32
"""Otherwise the maximum is this many write durations, one for each possible concurrent writer."""
OUTCOME_UNKNOWN = (Unreachable, ServerError)
"""Errors after which the outcome of a write is unknown."""


class LedgerContended(KubeError):
    """Other processes changed the ledger before every attempt; nothing was committed."""


@dataclass(frozen=True, slots=True)
class LedgerWriterOptions:
    tries: int = 40
    """Maximum number of attempts per batch."""
    lost: int = 3
    """Maximum number of attempts with an unknown outcome."""
    backoff: Backoff = field(default_factory=lambda: Backoff(0.004, factor=1.6, most=0.4, jitter=1.0))
    flush_after: float = 2.0
    """Seconds that a lazy change waits to share a write."""
    batch_window: float = 0.0
    """Seconds that a write waits for more changes, while claims arrive faster than that."""
    doubt: float = 2.0
    """Seconds to wait for the watch to resolve an uncertain version before a live read."""


class ArrivalRate:
    """The arrival rate of claims on all nodes: a single claim must not wait for others."""

    def __init__(self) -> None:
        self._last = self._before = float("-inf")

    def record(self, now: float) -> None:
        self._before, self._last = self._last, now

    def is_dense(self, now: float, gap: float) -> bool:
        """Whether the last two claims arrived within `gap` seconds, and the last one less than `gap` ago."""
        return self._last - self._before < gap and now - self._last < gap


@dataclass(frozen=True, slots=True)
class WriterContext:
    """The dependencies that all writers of a process share."""

    api: Client
    clock: Clock
    chance: Callable[[], float]
    metrics: LedgerWriteMetrics
    rules: LedgerWriterOptions
    traffic: ArrivalRate = field(default_factory=ArrivalRate)

    @property
    def batch_delay(self) -> float:
        """Seconds to wait for more changes before a write."""
        gap, now = self.rules.batch_window, self.clock.monotonic()
        return gap if gap and self.traffic.is_dense(now, gap) else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class PendingChange:
    step: BatchChange
    future: "asyncio.Future[Any]"


class LedgerWriter:
    def __init__(self, cached: CachedLedger, context: WriterContext) -> None:
        self._cache = cached
        self._context = context
        self._queue: list[PendingChange] = []
        self._batch: Sequence[PendingChange] = ()
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

    async def submit(self, step: BatchChange, *, lazy: bool = False) -> Any:
        """Queue the change and return its result after the commit."""
        return await self._enqueue(step, within=self._context.rules.flush_after if lazy else 0.0)

    def verify(self) -> None:
        """Schedule a live read, unless the watch resolves the uncertain version first."""
        if not (self.busy or self._ending):
            self._enqueue(AmendChange(_unchanged), within=self._context.rules.doubt).add_done_callback(
                _ignore_result
            )

    async def finish(self) -> None:
        """Write all queued changes at once."""
        self._ending = True
        if self._queue:
            self._start()
        if self._working is not None:
            await asyncio.wait([self._working])

    async def open(self, ledger: Ledger) -> Ledger:
        async with self._turn:
            for _ in range(self._context.rules.lost):
                if (known := self._cache.committed) is not None:
                    return known
                body = cached_ledger.new_object(self._cache.node, ledger)
                try:
                    await self._exchange(self._context.api.create(NODE_RESERVATIONS, body))
                except (AlreadyExists, *OUTCOME_UNKNOWN):
                    await self._read()
        if (known := self._cache.committed) is None:
            raise LedgerContended(f"the ledger of {self._cache.node} could not be opened; try again")
        return known

    async def close(self) -> bool:
        async with self._turn:
            for _ in range(self._context.rules.tries):
                await self._know()
                if self._cache.own is None:
                    return True
                if self._cache.own.ledger.holders():
                    return False
                if await self._delete():
                    return True
        raise LedgerContended(f"the ledger of {self._cache.node} keeps changing; try to close it again later")

    def _enqueue(self, step: BatchChange, *, within: float) -> "asyncio.Future[Any]":
        """Queue a change to be written within `within` seconds; 0: at once."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(PendingChange(step, future))
        if isinstance(step, ClaimChange):
            self._context.traffic.record(self._context.clock.monotonic())
            self._cache.expect(step)
        if not within:
            self._start()
        elif self._working is None:
            self._linger(within)
        return future

    def _linger(self, seconds: float) -> None:
        due = self._context.clock.monotonic() + seconds
        if self._lingering is None or due < self._due:
            self._hurry()
            self._lingering, self._due = asyncio.create_task(self._start_after(seconds)), due

    async def _start_after(self, seconds: float) -> None:
        await self._context.clock.sleep(seconds)
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
                if not self._ending and (wait := self._context.batch_delay):
                    await self._context.clock.sleep(wait)
                self._batch, self._queue = self._queue, []
                async with self._turn:
                    await self._settle(self._batch)
        finally:
            for waiting in (*self._batch, *self._queue):
                waiting.future.cancel()
            self._batch, self._queue, self._working = (), [], None
        if self._cache.versions.uncertain:
            self.verify()

    async def _settle(self, batch: Sequence[PendingChange]) -> None:
        """Resolve every change in the batch; an error becomes its result."""
        try:
            await self._commit(batch)
        except Invalid as refusal:
            await self._one_by_one(batch, refusal)
        except Exception as error:  # the callers get the error, and the writer continues
            self._fail(batch, error)

    async def _one_by_one(self, batch: Sequence[PendingChange], refusal: Invalid) -> None:
        """Write the changes separately, because the API server rejects one of them as invalid."""
        if len(batch) == 1:
            self._fail(batch, refusal)
            return
        for waiting in batch:
            await self._settle([waiting])

    async def _commit(self, batch: Sequence[PendingChange]) -> None:
        lost = 0
        for failures in range(1, self._context.rules.tries + 1):
            await self._know()
            waiting = [change for change in batch if not change.future.done()]
            folded = self._fold(waiting)
            try:
                await self._put(folded, len(waiting))
            except (Conflict, NotFound):
                self._cache.versions.doubt()
                self._context.metrics.conflicted()
                await self._pause(failures)
            except OUTCOME_UNKNOWN:
                self._cache.versions.doubt()
                if (lost := lost + 1) >= self._context.rules.lost:
                    raise
            else:
                self._answer(waiting, folded)
                return
        raise LedgerContended(
            f"other processes changed the ledger of {self._cache.node} {self._context.rules.tries} times "
            "before this change could be written; try again"
        )

    def _fold(self, waiting: Sequence[PendingChange]) -> BatchResult | None:
        """None if the node has no ledger."""
        if self._cache.own is None:
            return None
        return batching.apply_batch(self._cache.own.ledger, [change.step for change in waiting])

    async def _put(self, folded: BatchResult | None, changes: int) -> None:
        """Write the ledger if it changed, or if its summary is wrong."""
        mine = self._cache.own
        if folded is None or mine is None or (folded.ledger == mine.ledger and mine.summarized):
            return
        began = self._context.clock.monotonic()
        body = cached_ledger.updated_object(mine, folded.ledger)
        try:
            await self._exchange(self._context.api.update(NODE_RESERVATIONS, body))
        finally:
            self._took = self._context.clock.monotonic() - began
            self._context.metrics.attempted(changes, self._took)

    def _answer(self, batch: Sequence[PendingChange], folded: BatchResult | None) -> None:
        answers = folded.answers if folded is not None else (None,) * len(batch)
        for waiting, answer in zip(batch, answers, strict=True):
            if not waiting.future.done():
                self._tell(waiting, answer)
        self._arrived()

    def _tell(self, waiting: PendingChange, answer: ChangeResult) -> None:
        known = self._cache.own
        match waiting.step:
            case _ if isinstance(answer, Exception):
                waiting.future.set_exception(answer)
            case AmendChange() if known is None:
                waiting.future.set_exception(UnknownNode(self._cache.node))
            case AmendChange() if known is not None:
                waiting.future.set_result(known.ledger)
            case ClaimChange() if known is None:
                waiting.future.set_result(unknown_node(self._cache.node))
            case _:
                waiting.future.set_result(answer)

    def _fail(self, batch: Sequence[PendingChange], error: Exception) -> None:
        for waiting in batch:
            if not waiting.future.done():
                waiting.future.set_exception(error)
        self._arrived()

    def _arrived(self) -> None:
        """Remove resolved changes from the uncommitted claims."""
        self._cache.expect_only(w.step for w in (*self._batch, *self._queue) if not w.future.done())

    async def _know(self) -> None:
        if self._cache.versions.must_read:
            await self._read()

    async def _read(self) -> None:
        try:
            await self._exchange(self._context.api.get(NODE_RESERVATIONS, self._cache.node))
        except NotFound:
            self._cache.observe_absent()

    async def _delete(self) -> bool:
        """True if the object is deleted; False if it changed or the outcome is unknown."""
        if self._cache.own is None:
            return True
        state = self._cache.own.state
        how = DeleteOptions(uid=state.uid, resource_version=state.version)
        self._cache.versions.begin_request()
        try:
            await self._context.api.delete(NODE_RESERVATIONS, self._cache.node, how=how)
        except NotFound:
            pass
        except (Conflict, *OUTCOME_UNKNOWN):
            self._cache.versions.fail_request()
            self._cache.versions.doubt()
            return False
        self._cache.observe_absent()
        return True

    async def _exchange(self, request: Any) -> None:
        """Send a request that is answered with the object."""
        self._cache.versions.begin_request()
        try:
            raw = await request
        except BaseException:
            self._cache.versions.fail_request()
            raise
        self._cache.answer(raw, self._context.clock.monotonic())

    async def _pause(self, failures: int) -> None:
        """Back off in proportion to the duration of writes, because other writers need that time, too.

        The jitter is applied last: many writers at the same maximum would otherwise retry at once.
        """
        backoff = self._context.rules.backoff
        slow = max(1.0, self._took / backoff.first)
        longest = min(backoff.delay(failures, 1.0) * slow, max(MAX_PAUSE, ASSUMED_CONTENDERS * self._took))
        await self._context.clock.sleep(longest * self._context.chance())


def _unchanged(ledger: Ledger) -> Ledger:
    return ledger


def _ignore_result(future: "asyncio.Future[Any]") -> None:
    """Retrieve the exception: no caller waits, and an unresolved version is tried again."""
    if not future.cancelled():
        future.exception()
