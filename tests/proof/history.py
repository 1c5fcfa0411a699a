"""Every revision of every ledger, from before the first write, and the verdict on all of them.

The end of a run says little: an overcommit may have healed by then. So a watch collects each
revision as it is made. A recording with a hole proves nothing, and then the verdict is a failure:
a hole is a generation that is missing, or a watch that had to start over at another place.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from croupier.api import kinds
from croupier.kube import watch
from croupier.kube.client import EVERYTHING, Client, Selection
from croupier.kube.errors import Gone, KubeError
from croupier.kube.resource import Raw, Resource
from tests.kube.waiting import until_async
from tests.proof import facts
from tests.proof.facts import Fact
from tests.proof.judge import Judge, Sheet

LEDGERS: Resource[Raw] = kinds.NODE_RESERVATIONS.raw
PODS: Resource[Raw] = kinds.PODS.raw


class Gap(AssertionError):
    """The recording is not whole, so it proves nothing."""


@dataclass
class Tape:
    """All that happened to one kind, in order, or a reason why that cannot be said."""

    api: Client
    resource: Resource[Raw]
    judge: Judge
    selection: Selection = EVERYTHING
    version: str = ""
    gap: str = ""
    newest: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    """UID, generation and version of each object there is, by name."""
    breaks: int = 0

    async def begin(self) -> None:
        listing = await self.api.list(self.resource, self.selection)
        if listing.items:
            raise Gap(f"{len(listing.items)} {self.resource.plural} were there before the recording began")
        self.version = listing.resource_version

    async def run(self) -> None:
        """Until cancelled. A watch that ended goes on where it ended; one that cannot leaves a gap."""
        while not self.gap:
            try:
                await self._watch()
            except Gone:
                await self._compare()
            except KubeError:  # the API server is away, by intent of the test
                self.breaks += 1
                await asyncio.sleep(0.1)

    async def _watch(self) -> None:
        batches = self.api.watch(
            self.resource, self.selection, resource_version=self.version, seconds=1800, silence=1800
        )
        async with contextlib.aclosing(batches) as opened:
            async for batch in opened:
                for event in batch:
                    self._hear(event)

    def _hear(self, event: watch.Event[Raw]) -> None:
        match event:
            case watch.Change():
                self._note(event.type, event.object)
            case watch.Bookmark():
                self.version = event.resource_version
            case watch.Failed(error=error):
                raise error
            case watch.Skipped():
                self.gap = f"an event could not be read: {event.reason}"

    def _note(self, change: str, found: Raw) -> None:
        meta = found["metadata"]
        self.version = meta["resourceVersion"]
        name = _name(found)
        if change == "DELETED":
            self.newest.pop(name, None)
        else:
            self.newest[name] = _state(found)
        if self.resource is PODS:
            self.judge.pod(change, found)
        else:
            self.judge.ledger(change, found)

    async def _compare(self) -> None:
        """The place where we were is forgotten. No harm if each object is where we left it, or one on."""
        try:
            listing = await self.api.list(self.resource, self.selection)
        except KubeError:
            return
        listed = {_name(found): found for found in listing.items}
        if listed.keys() != self.newest.keys():
            self.gap = f"410 Gone: {self.resource.plural} came or went unseen after {self.version}"
        for name, found in sorted(listed.items(), key=lambda one: int(_state(one[1])[2])):
            (uid, generation, version), known = _state(found), self.newest.get(name)
            if known is None or known[2] == version:
                continue
            if uid != known[0] or generation > known[1] + 1:
                self.gap = f"410 Gone: revisions of {name} after {self.version} are lost"
            self._note("MODIFIED", found)
        self.version = listing.resource_version

    async def caught_up(self) -> bool:
        """The tape is where the API server is now."""
        listing = await self.api.list(self.resource, self.selection)
        return bool(self.gap) or {_name(found): _state(found) for found in listing.items} == self.newest


def _name(found: Raw) -> str:
    return f"{found['metadata'].get('namespace', '')}/{found['metadata']['name']}"


def _state(found: Raw) -> tuple[str, int, str]:
    meta = found["metadata"]
    return meta["uid"], meta.get("generation", 0), meta["resourceVersion"]


@dataclass
class History:
    """What was recorded. Ask only after `complete`."""

    tapes: list[Tape]
    judge: Judge
    with_pods: bool

    async def complete(self) -> None:
        """Wait until everything up to now is on tape."""
        for tape in self.tapes:
            await until_async(tape.caught_up, f"the recording of {tape.resource.plural}", within=120)

    def faults(self) -> list[str]:
        """Everything that must never have been, in order; a gap in the recording is the first of them."""
        crossed = facts.faults(self.judge.facts) if self.with_pods else []
        return [*self.gaps(), *self.judge.faults, *crossed]

    def gaps(self) -> list[str]:
        return [tape.gap for tape in self.tapes if tape.gap]

    @property
    def revisions(self) -> int:
        return self.judge.revisions

    def facts(self) -> list[Fact]:
        return sorted(self.judge.facts, key=lambda fact: fact.version)

    def sheets(self) -> dict[str, Sheet]:
        return self.judge.sheets


SILENCE = 4.0
"""Seconds without a write, and so several looks of every controller, that count as silence."""


async def silence(recording: History, others: Sequence[object] = ()) -> bool:
    """Whether writing stops: what is still on its way may come, then a whole silence passes.

    `others` grows with every other write that must stop, too.
    """
    for _ in range(5):
        await recording.complete()
        before = recording.revisions, len(others)
        await asyncio.sleep(SILENCE)  # time passing in silence is what is to be seen
        await recording.complete()
        if (recording.revisions, len(others)) == before:
            return True
    return False


@contextlib.asynccontextmanager
async def recorded(api: Client, *, pods: bool = False) -> AsyncIterator[History]:
    """Record from now on. With `pods`, also what must hold between ledgers and the pods of all namespaces."""
    judge = Judge()
    resources = [LEDGERS, PODS] if pods else [LEDGERS]
    tapes = [Tape(api, resource, judge) for resource in resources]
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
