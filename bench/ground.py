"""Environment of the benchmarks: temporary labs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from croupier.api import crds
from croupier.lab import borrowed
from croupier.lab.binaries import Sources
from croupier.lab.lab import Lab
from croupier.lab.lifecycle import Plan
from croupier.lab.progress import Progress
from croupier.lab.testrun import TestRun


@dataclass(frozen=True, slots=True)
class Ground:
    """`quick`: tiny sizes for a smoke test."""

    sources: Sources
    show: Progress
    quick: bool

    @asynccontextmanager
    async def raised(self, plan: Plan) -> AsyncIterator[Lab]:
        labs = TestRun(self.sources, self.show)  # also cleans up after a killed run
        lab = await labs.private(plan)
        try:
            yield lab
        finally:
            await labs.end(lab, keep_logs=False)
            labs.close(keep_logs=False)


async def install_kinds(lab: Lab) -> None:
    await asyncio.to_thread(borrowed.install, lab.cluster, crds.definitions())
