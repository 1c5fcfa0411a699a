"""Environment of the benchmarks: temporary labs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from croupier.api import crds
from croupier_lab import shared_cluster
from croupier_lab.binaries import BinarySources
from croupier_lab.lab import Lab
from croupier_lab.lifecycle import LabPlan
from croupier_lab.progress import ProgressReporter
from croupier_lab.testrun import TestRun


@dataclass(frozen=True, slots=True)
class BenchEnv:
    """`quick`: tiny sizes for a smoke test."""

    sources: BinarySources
    show: ProgressReporter
    quick: bool

    @asynccontextmanager
    async def raised(self, plan: LabPlan) -> AsyncIterator[Lab]:
        labs = TestRun(self.sources, self.show)  # also cleans up after a killed run
        lab = await labs.private(plan)
        try:
            yield lab
        finally:
            await labs.stop(keep_logs=False)


async def install_crds(lab: Lab) -> None:
    await asyncio.to_thread(shared_cluster.install, lab.cluster, crds.definitions())
