"""A real page: a lab, `croupier ui` as a process, and Chromium, whose complaints are collected.

Every wait has a deadline. `PageWatch.check` ends each test: the browser has logged no error, and no part of
the page broke its Content Security Policy.
"""

import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, BrowserContext, Page
from playwright.async_api import Error as PageFailure

from bench import page_process
from bench.page_process import PageProcess
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier_lab.lab import Lab
from tests.polling import until_async

PAGE_TIMEOUT: Final = 15_000.0
"""Milliseconds, of each wait in the browser."""
WIDE: Final = (1400, 900)
NARROW: Final = (400, 800)

LOUD: Final = ("error", "warning")
VIOLATIONS: Final = """
window.__violations = [];
document.addEventListener('securitypolicyviolation', (event) => window.__violations.push(
  `${event.violatedDirective}: ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
"""


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(kubeconfig), field_manager="test") as api:
        yield api


@dataclass
class PageWatch:
    """What went wrong in one browser context."""

    problems: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    """Regular expressions of problems that a test causes itself."""
    pages: list[Page] = field(default_factory=list)

    async def follow(self, context: BrowserContext) -> None:
        await context.add_init_script(VIOLATIONS)
        context.on("page", self._page)

    def _page(self, page: Page) -> None:
        self.pages.append(page)
        page.on(
            "console", lambda said: self._note(said.type in ("error", "warning"), f"console: {said.text}")
        )
        page.on("pageerror", lambda error: self._note(True, f"exception: {error}"))
        page.on(
            "requestfailed",
            lambda request: self._note(
                request.failure != "net::ERR_ABORTED", f"request {request.url} failed: {request.failure}"
            ),
        )

    def _note(self, bad: bool, text: str) -> None:
        if bad:
            self.problems.append(text)

    async def check(self) -> None:
        for page in self.pages:
            if not page.is_closed():
                self.problems += await page.evaluate("window.__violations ?? []")
        expected = (page_process.NETWORK_CHANGED, *self.expected)
        left = [text for text in self.problems if not any(re.search(one, text) for one in expected)]
        self.problems.clear()
        assert not left, "\n".join(left)


@dataclass
class PageEnv:
    lab: Lab
    api: Client
    browser: Browser
    server: PageProcess
    watch: PageWatch = field(default_factory=PageWatch)
    context: BrowserContext | None = None

    async def open(self, path: str = "/", *, size: tuple[int, int] = WIDE, theme: str = "light") -> Page:
        """A page in a fresh window, signed in with the printed link."""
        page = await self.window(size=size, theme=theme)
        await page_process.goto(page, self.server.link)
        await self.go(page, path)
        return page

    async def window(self, *, size: tuple[int, int] = WIDE, theme: str = "light") -> Page:
        await self.close()
        self.watch = PageWatch()
        self.context = await self.browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if theme == "dark" else "light",
            reduced_motion="reduce",
            locale="en-GB",
        )
        self.context.set_default_timeout(PAGE_TIMEOUT)
        await self.watch.follow(self.context)
        return await self.context.new_page()

    async def close(self) -> None:
        if self.context is not None:
            context, self.context = self.context, None
            await context.close()

    async def go(self, page: Page, path: str) -> None:
        """Open an address and wait until the page shows the live cluster."""
        await page_process.goto(page, f"{self.server.origin}{path}")
        await live(page)

    def kubectl(self, *args: str) -> str:
        return self.lab.kubectl(*args).stdout

    def get(self, *args: str) -> Any:
        return json.loads(self.kubectl("get", *args, "-o", "json"))


async def live(page: Page, *, within: float = PAGE_TIMEOUT) -> None:
    """Wait until both parts of the model are loaded and the stream is open."""
    ready = "window.croupier?.status() === 'live' && window.croupier.model().named"
    await until_page(page, ready, "the page to be live", within=within / 1000)


async def status(page: Page) -> str:
    return str(await page.evaluate("window.croupier.status()"))


async def until_page(page: Page, expression: str, what: str, *, within: float = 15.0) -> Any:
    """Poll an expression in the page until it is true, also across a navigation."""

    async def look() -> Any:
        try:
            return await page.evaluate(expression)
        except PageFailure as failure:
            if "context was destroyed" not in failure.message:
                raise
            return None

    return await until_async(look, what, within, every=0.05)


async def settled(page: Page) -> None:
    """Two frames later: what was folded is painted."""
    await page.evaluate(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))"
    )


def now() -> float:
    return time.monotonic()
