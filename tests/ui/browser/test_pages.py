"""Every page opens from its address, in both themes and at two widths, without an accessibility violation.

`make test` runs axe on every page in the light theme and its contrast rule in the dark one. `make prove` runs
all rules on all combinations.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page

from tests.ui.browser import axe, world
from tests.ui.browser import env as envs
from tests.ui.browser.env import NARROW, WIDE, PageEnv

SECONDS = 60

pytestmark = pytest.mark.asyncio(loop_scope="module")

NODE = "gpu-a-1"
SHOWN = {
    "/": "Overview",
    "/cards": "Cards",
    f"/cards/{world.DRAINED}": world.DRAIN_REASON,
    "/confirm": "shared",
    "/pools": "inference",
    "/pools/inference": "Draining",
    "/waiting": world.BIG,
    f"/pods/{world.BIG}": "needs 9 free cards",
    "/what-if": "What if",
    "/reservations": "next-week",
    "/market": NODE,
    f"/market/{NODE}": "team-a/trainer",
    "/audit": "team-c/whole",
    "/history": "History",
    "/me": "kubernetes",
}
"""Pages, and a text that each shows of the full cluster."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(page_env: PageEnv) -> AsyncIterator[PageEnv]:
    await world.write_namespaces(page_env.api)
    await world.write(page_env.api)
    await page_env.server.start()
    yield page_env


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def windows(env: PageEnv) -> AsyncIterator[dict[str, Page]]:
    """A signed-in window of each look."""
    page = await env.open("/")
    yield {"light": page}


@pytest.mark.parametrize("path", SHOWN)
async def test_a_page_shows_the_cluster(env: PageEnv, windows: dict[str, Page], path: str, screenshots: Path):
    page = windows["light"]
    await _look(env, page, path, size=WIDE, theme="light")
    await page.get_by_text(SHOWN[path]).first.wait_for(state="attached")
    await page.screenshot(path=screenshots / f"{_file(path)}-light.png")
    assert await axe.violations(page) == []
    await env.watch.check()


@pytest.mark.parametrize("path", SHOWN)
async def test_a_page_is_readable_in_the_dark(
    env: PageEnv, windows: dict[str, Page], path: str, screenshots: Path, prove_full: bool
):
    page = windows["light"]
    await _look(env, page, path, size=WIDE, theme="dark")
    await page.screenshot(path=screenshots / f"{_file(path)}-dark.png")
    assert await axe.violations(page, rules=() if prove_full else axe.CONTRAST) == []
    await env.watch.check()


@pytest.mark.parametrize("path", SHOWN)
async def test_a_page_fits_a_narrow_window(
    env: PageEnv, windows: dict[str, Page], path: str, screenshots: Path, prove_full: bool
):
    page = windows["light"]
    await _look(env, page, path, size=NARROW, theme="light")
    await page.screenshot(path=screenshots / f"{_file(path)}-narrow.png")
    assert await page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]
    if prove_full:
        assert await axe.violations(page) == []
    await env.watch.check()


async def _look(env: PageEnv, page: Page, path: str, *, size: tuple[int, int], theme: str) -> None:
    """Open the address in this window, with this width and theme."""
    await page.set_viewport_size({"width": size[0], "height": size[1]})
    await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    await env.go(page, path)
    await page.locator("main h1").first.wait_for()
    await envs.settled(page)


def _file(path: str) -> str:
    return path.strip("/").replace("/", "-") or "overview"
