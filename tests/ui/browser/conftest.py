"""One lab, one browser and one `croupier ui` for each test file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from bench import page_process
from bench.page_process import PageProcess
from croupier.api import crds
from croupier_lab.controlplane import API_COMPONENTS
from croupier_lab.lab import Lab
from croupier_lab.lifecycle import LabPlan
from croupier_lab.pytest_plugin import FAILED_WITH_LAB, RUN
from tests import forks
from tests.ui.browser import env as envs
from tests.ui.browser.env import PageEnv


@pytest.fixture(scope="session")
def screenshots(pytestconfig: pytest.Config) -> Path:
    """The folder of the screenshots of `make prove`."""
    folder = pytestconfig.rootpath / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def prove_full(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--prove-full"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    if reason := page_process.obstacle():
        pytest.skip(reason)
    async with page_process.chromium() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page_lab(pytestconfig: pytest.Config, browser: Browser) -> AsyncIterator[Lab]:
    """A lab of its own with the CRDs: the API server only, so that the written states last."""
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("writes a whole fleet, but --kubeconfig selects another cluster")
    run = pytestconfig.stash[RUN]
    lab = await run.private(LabPlan(parts=API_COMPONENTS), crds.definitions())
    yield lab
    await run.end(lab, keep_logs=pytestconfig.stash[FAILED_WITH_LAB])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page_env(
    page_lab: Lab, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[PageEnv]:
    """An empty cluster; the test file fills it."""
    log = page_lab.logs / "croupier-ui.log"
    async with envs.connected(page_lab.kubeconfig) as api:
        server = PageProcess(page_lab.kubeconfig, log, launch=forks.croupier)
        made = PageEnv(page_lab, api, browser, server)
        try:
            yield made
        finally:
            await made.close()
            await server.stop()
