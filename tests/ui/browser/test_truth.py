"""The page has the ledger of the API server after random changes and faults, without a reload (goal U12)."""

import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page

from croupier.api import kinds
from croupier_lab.controlplane import API_SERVER
from tests.cli.env import croupier
from tests.polling import until_async
from tests.ui.browser import churn, world
from tests.ui.browser import env as envs
from tests.ui.browser.churn import Churn
from tests.ui.browser.env import PageEnv

SECONDS = 20

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIVE_AGAIN = 5.0
CHANGES, CHANGES_FULL = 60, 600


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(page_env: PageEnv) -> AsyncIterator[PageEnv]:
    await world.write_namespaces(page_env.api)
    await world.write(page_env.api)
    await page_env.server.start()
    yield page_env


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(env: PageEnv) -> AsyncIterator[Page]:
    opened = await env.open("/cards")
    await opened.evaluate("window.sameDocument = true")
    yield opened
    assert await opened.evaluate("window.sameDocument"), "the page was loaded again"


@pytest.fixture
def changes(env: PageEnv) -> Churn:
    seed = random.randrange(10**6)  # noqa: S311 (pytest-randomly prints the seed)
    return Churn(env.api, random.Random(seed), list(world.FLEET))  # noqa: S311 (see above)


async def test_the_page_has_the_ledger_after_random_changes(
    env: PageEnv, page: Page, changes: Churn, prove_full: bool
):
    for _ in range(6):
        await changes.change((CHANGES_FULL if prove_full else CHANGES) // 6)
        await churn.until_equal(env.api, page, within=LIVE_AGAIN)

    await _command_agrees(env, page)
    await env.watch.check()


async def test_the_page_follows_nodes_that_come_and_go(env: PageEnv, page: Page):
    record = env.get("nodereservation", world.PARTLY_UNKNOWN)

    env.kubectl("delete", "nodereservation", world.PARTLY_UNKNOWN)
    await churn.until_equal(env.api, page, within=LIVE_AGAIN)

    body = {"metadata": {"name": world.PARTLY_UNKNOWN}, "spec": record["spec"]}
    await env.api.create(kinds.NODE_RESERVATIONS.raw, body)
    await churn.until_equal(env.api, page, within=LIVE_AGAIN)
    await env.watch.check()


async def test_the_page_is_right_after_the_server_was_killed(env: PageEnv, page: Page, changes: Churn):
    env.watch.expected.append(r"ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY|ERR_NETWORK|ERR_CONN")
    await env.server.stop(kill=True)
    await envs.until_page(page, "window.croupier.status() !== 'live'", "the page to notice")
    await changes.change(20)

    await env.server.start()

    await envs.live(page, within=LIVE_AGAIN * 1000)
    await churn.until_equal(env.api, page, within=LIVE_AGAIN)
    await env.watch.check()


async def test_the_page_is_right_after_the_api_server_was_killed(env: PageEnv, page: Page, changes: Churn):
    env.watch.expected.append(r"status of 502")
    env.lab.kill(API_SERVER)
    env.lab.etcd_compact()  # the watches cannot resume: everything is listed again
    await env.lab.start(API_SERVER)
    await env.lab.ready([API_SERVER])
    await changes.change(20)

    await envs.live(page, within=20_000)
    await churn.until_equal(env.api, page, within=20)
    await changes.change(5)
    await churn.until_equal(env.api, page, within=LIVE_AGAIN)
    await env.watch.check()


async def test_two_tabs_have_the_same_ledger(env: PageEnv, page: Page, changes: Churn):
    assert env.context is not None
    other = await env.context.new_page()
    await env.go(other, "/pools")
    await changes.change(20)

    await churn.until_equal(env.api, other, within=LIVE_AGAIN)
    await churn.until_equal(env.api, page, within=LIVE_AGAIN)
    await other.close()
    await env.watch.check()


async def _command_agrees(env: PageEnv, page: Page) -> None:
    """The command itself, for one node: the comparison above reads the same data in this process."""
    node = "gpu-a-1"
    ended = croupier("ledger", node, "-o", "json", kubeconfig=env.lab.kubeconfig)
    wanted = churn.by_index(ended.data["devices"])

    async def equal() -> bool:
        return (await churn.shown(page))[node] == wanted

    await until_async(equal, "the page to have what the command prints", LIVE_AGAIN)
