"""One day in an installation, lived through once for all tests that ask what became of it."""

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
    """After that day: whoever worked has gone home, the API server and its audit log are still there."""
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("needs an API server with an audit log, and --kubeconfig names another")
    rendering.helm()
    try:
        return testrun.run(_day(pytestconfig.stash[RUN], tmp_path_factory.mktemp("town")))
    except BaseException:
        pytestconfig.stash[FAILED_WITH_LAB] = True  # its logs are worth keeping
        raise


async def _day(run: TestRun, folder: Path) -> Town:
    known = await asyncio.to_thread(discovery.kinds)
    rule = (rendering.NODE_FEATURE_RULES,) if known else ()
    async with town.raised(run, folder, known) as made, a_day.day(made) as day:
        await living.whole(day, *rule)
        day.note("the day ends")
        return made
