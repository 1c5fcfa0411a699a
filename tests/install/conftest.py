"""The installation scenario, which runs once for all tests of its results."""

import asyncio
from pathlib import Path

import pytest

from croupier.lab import testrun
from croupier.lab.pytest_plugin import FAILED_WITH_LAB, RUN
from croupier.lab.testrun import TestRun
from tests.install import a_day, discovery, living, rendering, town
from tests.install.town import Town


@pytest.fixture(scope="session")
def lived_in(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Town:
    """The environment after the scenario: the processes have stopped, the API server still runs."""
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("needs an API server with an audit log, but --kubeconfig selects another cluster")
    rendering.helm()
    try:
        return testrun.run(_day(pytestconfig.stash[RUN], tmp_path_factory.mktemp("town")))
    except BaseException:
        pytestconfig.stash[FAILED_WITH_LAB] = True  # keep its logs
        raise


async def _day(run: TestRun, folder: Path) -> Town:
    known = await asyncio.to_thread(discovery.kinds)
    rule = (rendering.NODE_FEATURE_RULES,) if known else ()
    async with town.raised(run, folder, known) as made, a_day.day(made) as day:
        await living.whole(day, *rule)
        day.note("the scenario ends")
        return made
