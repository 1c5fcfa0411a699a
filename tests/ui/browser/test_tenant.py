"""A tenant with rights in one namespace, in a real browser: amounts and own names, and no name of others."""

import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from bench import page_process
from tests.ui.browser import axe
from tests.ui.browser import env as envs
from tests.ui.browser.env import PageWatch
from tests.ui.hostile_env import HostileLab, ServedPage
from tests.ui.hostile_world import NODE, SECRET, SHARED, TENANT

SECONDS = 20
PATHS = (
    "/",
    "/cards",
    f"/cards/{SHARED}",
    "/confirm",
    "/pools",
    "/pools/shared",
    "/waiting",
    f"/pods/{TENANT}/mine",
    f"/pods/{TENANT}/waits",
    "/what-if",
    "/reservations",
    "/market",
    "/audit",
    "/history",
    "/me",
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@contextlib.asynccontextmanager
async def new_window(browser: Browser) -> AsyncIterator[tuple[Page, PageWatch]]:
    context = await browser.new_context(ignore_https_errors=True, locale="en-GB")
    watch = PageWatch(expected=[r"status of 40[134]"])
    await watch.follow(context)
    yield await context.new_page(), watch
    await context.close()


async def sign_in(page: Page, address: str, token: str) -> None:
    await page_process.goto(page, address)
    await page.get_by_role("textbox", name="Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await envs.live(page)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def window(
    browser: Browser, hostile: HostileLab, token_page: ServedPage
) -> AsyncIterator[tuple[Page, PageWatch]]:
    """Signed in as the tenant."""
    async with new_window(browser) as (page, watch):
        await sign_in(page, token_page.origin, hostile.tokens["tenant"])
        yield page, watch


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(browser: Browser, token_page: ServedPage) -> AsyncIterator[tuple[Page, PageWatch]]:
    """Without a session."""
    async with new_window(browser) as made:
        yield made


async def test_the_tenant_signs_in_with_a_token(
    hostile: HostileLab, token_page: ServedPage, fresh: tuple[Page, PageWatch]
):
    page, watch = fresh
    await page_process.goto(page, f"{token_page.origin}/cards?by=model")
    field = page.get_by_role("textbox", name="Token")
    await field.fill("not.a.token")
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_text("the API server does not accept the token").wait_for()
    assert await axe.violations(page) == []

    await field.fill(hostile.tokens["tenant"])
    await page.get_by_role("button", name="Sign in").click()

    await envs.live(page)
    assert page.url == f"{token_page.origin}/cards?by=model", "where the tenant wanted to go"
    cookies = await page.context.cookies()
    assert cookies
    assert all(cookie.get("httpOnly") and cookie.get("secure") for cookie in cookies)
    assert hostile.tokens["tenant"] not in await page.content()
    await watch.check()


@pytest.mark.parametrize("path", PATHS)
async def test_no_page_names_what_belongs_to_others(
    token_page: ServedPage, window: tuple[Page, PageWatch], path: str
):
    page, watch = window
    await page_process.goto(page, f"{token_page.origin}{path}")
    await envs.live(page)
    await page.locator("main h1").first.wait_for()
    await envs.settled(page)

    assert SECRET not in await page.content()
    held = await page.evaluate("JSON.stringify([...window.croupier.model().holders.values()])")
    assert SECRET not in held
    await watch.check()


async def test_amounts_of_others_stay(token_page: ServedPage, window: tuple[Page, PageWatch]):
    page, watch = window
    await page_process.goto(page, f"{token_page.origin}/cards/{SHARED}")
    await envs.live(page)

    await page.get_by_text(f"{TENANT}/mine").first.wait_for()
    card = await page.evaluate(f"window.croupier.model().cards.get('{SHARED}')")
    assert sorted(holder["share"] for holder in card["holders"]) == [25, 50]
    assert card["node"] == NODE
    await watch.check()


async def test_what_belongs_to_others_does_not_exist(token_page: ServedPage, window: tuple[Page, PageWatch]):
    page, watch = window
    await page_process.goto(page, f"{token_page.origin}/pods/{SECRET}/{SECRET}-job")

    await page.get_by_text("that you may see").first.wait_for()
    await watch.check()


async def test_actions_are_off(token_page: ServedPage, window: tuple[Page, PageWatch]):
    page, watch = window
    await page_process.goto(page, f"{token_page.origin}/me")
    await envs.live(page)

    sees = await page.locator("main").inner_text()
    assert TENANT in sees
    answer = await page.evaluate("fetch('/api/v1/me').then((found) => found.json())")
    assert answer["actions"] == []
    await watch.check()


async def test_the_tenant_signs_out(
    hostile: HostileLab, token_page: ServedPage, fresh: tuple[Page, PageWatch]
):
    page, watch = fresh
    await sign_in(page, f"{token_page.origin}/me", hostile.tokens["tenant"])

    await page.locator("main").get_by_role("button", name="Sign out").click()

    await page.get_by_role("textbox", name="Token").wait_for()
    assert await page.context.cookies() == []
    await watch.check()
