"""Every page opens from its address, in both themes and at two widths, without an accessibility violation.

`make test` runs axe on every page in the light theme and its contrast rule in the dark one. `make prove` runs
all rules on all combinations, and takes screenshots.
"""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal, NamedTuple

import pytest
import pytest_asyncio
from playwright.async_api import Page

from tests.ui.browser import axe, world
from tests.ui.browser import env as envs
from tests.ui.browser.env import NARROW, WIDE, PageEnv

SECONDS = 40

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


class Look(NamedTuple):
    size: tuple[int, int]
    theme: Literal["light", "dark"]


LOOKS = {"light": Look(WIDE, "light"), "dark": Look(WIDE, "dark"), "narrow": Look(NARROW, "light")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(page_env: PageEnv) -> AsyncIterator[PageEnv]:
    await world.write_namespaces(page_env.api)
    await world.write(page_env.api)
    await page_env.server.start()
    yield page_env


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(env: PageEnv) -> AsyncIterator[Page]:
    yield await env.open("/")


@pytest.mark.parametrize(("path", "first"), list(zip(SHOWN, itertools.cycle(LOOKS), strict=False)))
async def test_a_page_shows_the_cluster_in_every_look(
    env: PageEnv, page: Page, path: str, first: str, screenshots: Path, prove_full: bool
):
    """Each page is opened in one look, and then changes to the others; `make prove` opens it in all."""
    for look in sorted(LOOKS, key=lambda name: name != first):
        await _change(page, look)
        if look == first or prove_full:
            await env.go(page, path)
        await page.locator("main h1").first.wait_for()
        await page.get_by_text(SHOWN[path]).first.wait_for(state="attached")
        await envs.settled(page)
        if prove_full:
            await page.screenshot(path=screenshots / f"{_file(path)}-{look}.png")
        assert await _violations(page, look, full=prove_full) == [], look
        assert await page.evaluate("document.documentElement.scrollWidth") <= LOOKS[look].size[0], look
    await env.watch.check()


async def _change(page: Page, name: str) -> None:
    size, theme = LOOKS[name]
    await page.set_viewport_size({"width": size[0], "height": size[1]})
    await page.emulate_media(color_scheme=theme)


async def _violations(page: Page, look: str, *, full: bool) -> list[str]:
    if full or look == "light":
        return await axe.violations(page)
    return await axe.violations(page, rules=axe.CONTRAST) if look == "dark" else []


def _file(path: str) -> str:
    return path.strip("/").replace("/", "-") or "overview"
