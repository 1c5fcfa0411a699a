"""Every page of a cluster without cards says so, and says what to do."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page

from bench import page_process
from tests.ui.browser import axe, world
from tests.ui.browser import env as envs
from tests.ui.browser.env import PageEnv

SECONDS = 20

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATHS = (
    "/",
    "/cards",
    "/confirm",
    "/pools",
    "/waiting",
    "/what-if",
    "/reservations",
    "/market",
    "/audit",
    "/history",
    "/me",
)
MISSING = ("/cards/no-such-card", "/pools/no-such-pool", "/pods/team-a/no-such-pod", "/market/no-such-node")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(page_env: PageEnv) -> AsyncIterator[PageEnv]:
    await world.write_namespaces(page_env.api)
    await page_env.server.start()
    yield page_env


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(env: PageEnv) -> AsyncIterator[Page]:
    yield await env.open("/")


@pytest.mark.parametrize("path", PATHS)
async def test_an_empty_page_is_complete(
    env: PageEnv, page: Page, path: str, screenshots: Path, prove_full: bool
):
    for theme in ("light", "dark") if prove_full else ("light",):
        await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        await env.go(page, path)
        await page.locator("main h1").first.wait_for()
        await envs.settled(page)
        name = path.strip("/") or "overview"
        if prove_full:
            await page.screenshot(path=screenshots / f"{name}-empty-{theme}.png")
        said, title = page.locator("main"), page.locator("main h1").first
        assert len(await said.inner_text()) > len(await title.inner_text()), "the page has a title only"
        assert await axe.violations(page) == []
    await env.watch.check()


@pytest.mark.parametrize("path", MISSING)
async def test_a_missing_object_is_named(env: PageEnv, page: Page, path: str):
    env.watch.expected.append(r"status of 404")

    await env.go(page, path)

    await page.locator("main").get_by_text(path.rpartition("/")[2]).first.wait_for()
    await env.watch.check()


async def test_an_unknown_address_says_so(env: PageEnv, page: Page):
    await page_process.goto(page, f"{env.server.origin}/no-such-page")

    await page.get_by_role("heading", name="No such page").wait_for()
    await env.watch.check()


async def test_a_browser_without_a_session_is_told_what_to_do(env: PageEnv, page: Page):
    context = await env.browser.new_context(locale="en-GB")
    stranger = await context.new_page()

    await page_process.goto(stranger, f"{env.server.origin}/pools")

    await stranger.get_by_text("open the link that `croupier ui` has printed").wait_for()
    assert await stranger.get_by_role("textbox").count() == 0, "a token would not help"
    assert await axe.violations(stranger) == []
    await context.close()
