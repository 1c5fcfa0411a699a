"""Records every revision of every ledger from the start, and checks all of them.

The final state proves little, because an overcommit may be repaired by then. So a watch records each
revision. An incomplete recording proves nothing and is a failure: a missing generation, or a watch that
could not be resumed.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from croupier.api import kinds
from croupier.kube.client import watch_protocol
from croupier.kube.client.api_client import EVERYTHING, Client, Selection
from croupier.kube.client.errors import Gone, KubeError
from croupier.kube.client.resource import Raw, Resource
from tests.polling import until_async
from tests.proof import facts
from tests.proof.facts import Fact
from tests.proof.invariants import InvariantChecker, LedgerRevision

LEDGERS: Resource[Raw] = kinds.NODE_RESERVATIONS.raw
PODS: Resource[Raw] = kinds.PODS.raw


class RecordingGap(AssertionError):
    """The recording is incomplete."""


@dataclass
class WatchRecording:
    """All revisions of one kind in order, or the reason for a gap."""

    api: Client
    resource: Resource[Raw]
    judge: InvariantChecker
    selection: Selection = EVERYTHING
    version: str = ""
    gap: str = ""
    newest: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    """UID, generation and version of each existing object, by name."""
    breaks: int = 0
    kept: list[Raw] | None = None
    """Every revision, if they are kept."""

    async def begin(self) -> None:
        listing = await self.api.list(self.resource, self.selection)
        if listing.items:
            raise RecordingGap(
                f"{len(listing.items)} {self.resource.plural} existed before the recording started"
            )
        self.version = listing.resource_version

    async def run(self) -> None:
        """Run until cancelled. A watch that ended is resumed; a watch that cannot be resumed leaves a gap."""
        while not self.gap:
            try:
                await self._watch()
            except Gone:
                await self._compare()
            except KubeError:  # the test stopped the API server
                self.breaks += 1
                await asyncio.sleep(0.1)

    async def _watch(self) -> None:
        batches = self.api.watch(
            self.resource, self.selection, resource_version=self.version, seconds=1800, idle_timeout=1800
        )
        async with contextlib.aclosing(batches) as opened:
            async for batch in opened:
                for event in batch:
                    self._hear(event)

    def _hear(self, event: watch_protocol.WatchEvent[Raw]) -> None:
        match event:
            case watch_protocol.ObjectEvent():
                self._note(event.type, event.object)
            case watch_protocol.Bookmark():
                self.version = event.resource_version
            case watch_protocol.WatchError(error=error):
                raise error
            case watch_protocol.SkippedEvent():
                self.gap = f"an event could not be read: {event.reason}"

    def _note(self, change: str, raw: Raw) -> None:
        meta = raw["metadata"]
        self.version = meta["resourceVersion"]
        name = _name(raw)
        if self.kept is not None:
            self.kept.append(raw)
        if change == "DELETED":
            self.newest.pop(name, None)
        else:
            self.newest[name] = _state(raw)
        if self.resource is PODS:
            self.judge.pod(change, raw)
        else:
            self.judge.ledger(change, raw)

    async def _compare(self) -> None:
        """Our version is compacted. There is no gap if each object has at most one newer generation."""
        try:
            listing = await self.api.list(self.resource, self.selection)
        except KubeError:
            return
        listed = {_name(raw): raw for raw in listing.items}
        if listed.keys() != self.newest.keys():
            self.gap = f"410 Gone: {self.resource.plural} were created or deleted unseen after {self.version}"
        for name, raw in sorted(listed.items(), key=lambda item: int(_state(item[1])[2])):
            (uid, generation, version), known = _state(raw), self.newest.get(name)
            if known is None or known[2] == version:
                continue
            if uid != known[0] or generation > known[1] + 1:
                self.gap = f"410 Gone: revisions of {name} after {self.version} are lost"
            self._note("MODIFIED", raw)
        self.version = listing.resource_version

    async def caught_up(self) -> bool:
        """Whether the recording contains the current state of the API server."""
        listing = await self.api.list(self.resource, self.selection)
        return bool(self.gap) or {_name(raw): _state(raw) for raw in listing.items} == self.newest


def _name(raw: Raw) -> str:
    return f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"


def _state(raw: Raw) -> tuple[str, int, str]:
    meta = raw["metadata"]
    return meta["uid"], meta.get("generation", 0), meta["resourceVersion"]


@dataclass
class History:
    """The recordings. Query it only after `complete`."""

    tapes: list[WatchRecording]
    judge: InvariantChecker
    with_pods: bool

    async def complete(self) -> None:
        """Wait until everything up to now is recorded."""
        for tape in self.tapes:
            await until_async(tape.caught_up, f"the recording of {tape.resource.plural}", within=120)

    def faults(self) -> list[str]:
        """All violated invariants; gaps of the recording come first."""
        crossed = facts.faults(self.judge.facts) if self.with_pods else []
        return [*self.gaps(), *self.judge.faults, *crossed]

    def gaps(self) -> list[str]:
        return [tape.gap for tape in self.tapes if tape.gap]

    @property
    def revisions(self) -> int:
        return self.judge.revisions

    def facts(self) -> list[Fact]:
        return sorted(self.judge.facts, key=lambda fact: fact.version)

    def kept(self) -> list[Raw]:
        """Every revision of every ledger in order."""
        return [raw for tape in self.tapes if tape.resource is LEDGERS for raw in tape.kept or ()]

    def sheets(self) -> dict[str, LedgerRevision]:
        return self.judge.sheets


ATTEMPTS = 5
"""Rounds that may still write: what one controller writes can be work for another one."""


async def writes_stop(
    recording: History, full_round: Callable[[], Awaitable[None]], others: Sequence[object] = ()
) -> bool:
    """Whether a full round of all controllers writes nothing (`LedgerManagerEnv.full_round`).

    `others` grows with every other write that must stop, too.
    """
    for _ in range(ATTEMPTS):
        await recording.complete()
        before = recording.revisions, len(others)
        await full_round()
        await recording.complete()
        if (recording.revisions, len(others)) == before:
            return True
    return False


@contextlib.asynccontextmanager
async def record(api: Client, *, pods: bool = False, keep: bool = False) -> AsyncIterator[History]:
    """Record from now on. With `pods`, also check ledgers against the pods of all namespaces.

    With `keep`, the revisions themselves are kept.
    """
    judge = InvariantChecker()
    resources = [LEDGERS, PODS] if pods else [LEDGERS]
    kept: list[Raw] | None = [] if keep else None
    tapes = [WatchRecording(api, resource, judge, kept=kept) for resource in resources]
    for tape in tapes:
        await tape.begin()
    running = [asyncio.create_task(tape.run()) for tape in tapes]
    try:
        yield History(tapes, judge, pods)
    finally:
        for task in running:
            task.cancel()
        for ending in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(ending, Exception):
                raise ending
