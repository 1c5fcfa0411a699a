"""One day in an installation, lived through once for all tests that ask what became of it."""

from pathlib import Path

import pytest

from croupier.lab import testrun
from croupier.lab.pytest_plugin import FAILED_WITH_LAB, RUN
from croupier.lab.testrun import TestRun
from tests.install import a_day, town, watching
from tests.install.town import Town


@pytest.fixture(scope="session")
def lived_in(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Town:
    """After that day: whoever worked has gone home, the API server and its audit log are still there."""
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("needs an API server with an audit log, and --kubeconfig names another")
    try:
        return testrun.run(_day(pytestconfig.stash[RUN], tmp_path_factory.mktemp("town")))
    except BaseException:
        pytestconfig.stash[FAILED_WITH_LAB] = True  # its logs are worth keeping
        raise


async def _day(run: TestRun, folder: Path) -> Town:
    async with town.raised(run, folder) as made, a_day.day(made) as day:
        try:
            await day.begins()
            async with watching.shown(made, day):
                await a_day.whole(day)
            await a_day.night(day)
        finally:
            await made.rest()
        return made
