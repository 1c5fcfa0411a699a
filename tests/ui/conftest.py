"""A lab with two tenants, and pages in each mode, shared by the tests of one file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from croupier.api import crds
from croupier_lab.controlplane import API_COMPONENTS
from croupier_lab.lifecycle import LabPlan
from croupier_lab.pytest_plugin import FAILED_WITH_LAB, RUN
from tests.ui import hostile_env
from tests.ui.hostile_env import ACTIONS, HostileLab, ServedPage


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hostile(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HostileLab]:
    """A lab of its own: the API server only, so that the written states last."""
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("writes roles and a fleet, but --kubeconfig selects another cluster")
    run = pytestconfig.stash[RUN]
    lab = await run.private(LabPlan(parts=API_COMPONENTS), crds.definitions())
    folder: Path = tmp_path_factory.mktemp("certificates")
    yield await hostile_env.installed(lab, folder)
    await run.end(lab, keep_logs=pytestconfig.stash[FAILED_WITH_LAB])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_page(hostile: HostileLab) -> AsyncIterator[ServedPage]:
    with hostile.page("local") as page:
        await page.ready()
        yield page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def token_page(hostile: HostileLab) -> AsyncIterator[ServedPage]:
    """As the chart starts it: no actions."""
    with hostile.page("token") as page:
        await page.ready()
        yield page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bearer_page(hostile: HostileLab) -> AsyncIterator[ServedPage]:
    """All actions; its client is the administrator."""
    with hostile.page("bearer", f"--actions={ACTIONS}") as page:
        page.headers = {"Authorization": f"Bearer {hostile.tokens['admin']}"}
        await page.ready()
        yield page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def headers_page(hostile: HostileLab) -> AsyncIterator[ServedPage]:
    """All actions; its client is the proxy, for the person who may do everything."""
    with hostile.page("headers", f"--actions={ACTIONS}") as page:
        page.headers = {"X-Forwarded-User": "admin-person", "X-Forwarded-Groups": "people"}
        await page.ready()
        yield page


@pytest_asyncio.fixture
async def nothing_written(hostile: HostileLab) -> AsyncIterator[None]:
    """No object has another version after the test."""
    before = await hostile.versions()
    yield
    assert await hostile.versions() == before
