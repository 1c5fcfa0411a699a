"""The installation scenario, which runs once for all tests of its results."""

import asyncio
from pathlib import Path

import pytest

from croupier_lab import testrun
from croupier_lab.pytest_plugin import FAILED_WITH_LAB, RUN
from croupier_lab.testrun import TestRun
from tests.install import chart_env, nfd_crds, rendering, scenario, scenario_env
from tests.install.chart_env import ChartEnv


@pytest.fixture(scope="session")
def finished_scenario(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> ChartEnv:
    """The environment after the scenario: the processes have stopped, the API server still runs."""
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("needs an API server with an audit log, but --kubeconfig selects another cluster")
    rendering.helm()
    try:
        return testrun.run(_run_scenario(pytestconfig.stash[RUN], tmp_path_factory.mktemp("scenario")))
    except BaseException:
        pytestconfig.stash[FAILED_WITH_LAB] = True  # keep its logs
        raise


async def _run_scenario(run: TestRun, folder: Path) -> ChartEnv:
    known = await asyncio.to_thread(nfd_crds.crds)
    rule = (rendering.NODE_FEATURE_RULES,) if known else ()
    async with chart_env.raised(run, folder, known) as made, scenario_env.scenario_env(made) as env:
        await scenario.run(env, *rule)
        env.note("the scenario ends")
        return made
