"""Measurements inside the browser: time to paint, bytes, long tasks, frames, memory."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from playwright.async_api import Browser, BrowserContext, CDPSession, Page

from bench import page_process
from bench.page_process import PageProcess

PAINTED: Final = "croupier:cards"
TIMEOUT: Final = 60_000.0
POLL: Final = 0.02
SIZE: Final = {"width": 1400, "height": 900}

UNTIL_PAINTED: Final = f"performance.getEntriesByName('{PAINTED}').length > 0"
PAINT_TIME: Final = f"performance.getEntriesByName('{PAINTED}')[0].startTime"
UNTIL_LIVE: Final = "window.croupier?.status() === 'live' && window.croupier.model().named"

OBSERVE: Final = """
window.bench = { tasks: [], frames: [] };
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.bench.tasks.push(entry.duration);
}).observe({ type: 'longtask' });
(() => {
  let last = performance.now();
  const frame = (now) => { window.bench.frames.push(now - last); last = now; requestAnimationFrame(frame); };
  requestAnimationFrame(frame);
})();
"""

WATCH_PIXELS: Final = """
(card) => {
  const canvas = document.querySelector('.map canvas');
  const place = window.croupier.boxes()[card], frame = canvas.getBoundingClientRect();
  const scale = canvas.width / frame.width;
  const box = [place.x - frame.x, place.y - frame.y, place.width, place.height]
    .map((n) => Math.round(n * scale));
  const copy = new OffscreenCanvas(box[2], box[3]).getContext('2d', { willReadFrequently: true });
  const pixels = () => {
    copy.drawImage(canvas, box[0], box[1], box[2], box[3], 0, 0, box[2], box[3]);
    return copy.getImageData(0, 0, box[2], box[3]).data.join();
  };
  const before = pixels();
  window.changed = new Promise((done, fail) => {
    const deadline = performance.now() + 10000;
    const look = () => {
      if (pixels() !== before) done(performance.timeOrigin + performance.now());
      else if (performance.now() > deadline) fail(new Error(`card ${card} was not painted again in 10 s`));
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  window.changed.catch(() => {});
}
"""


@dataclass
class Traffic:
    """The bytes that a page received, by kind of request."""

    shell: float = 0.0
    cards: float = 0.0
    names: float = 0.0
    stream: float = 0.0
    urls: dict[str, str] = field(default_factory=dict)

    async def follow(self, session: CDPSession) -> None:
        session.on("Network.responseReceived", self._opened)
        session.on("Network.loadingFinished", self._finished)
        session.on("Network.dataReceived", self._received)
        await session.send("Network.enable")

    def _opened(self, event: dict[str, Any]) -> None:
        self.urls[event["requestId"]] = event["response"]["url"]

    def _finished(self, event: dict[str, Any]) -> None:
        url, size = self.urls.get(event["requestId"], ""), float(event["encodedDataLength"])
        if "part=cards" in url:
            self.cards += size
        elif "part=names" in url:
            self.names += size
        elif "/api/" not in url:
            self.shell += size

    def _received(self, event: dict[str, Any]) -> None:
        if "/api/v1/stream" in self.urls.get(event["requestId"], ""):
            self.stream += float(event["encodedDataLength"] or event["dataLength"])


@dataclass
class MeasuredPage:
    context: BrowserContext
    page: Page
    session: CDPSession
    traffic: Traffic

    async def paint(self, address: str) -> float:
        """Load the address; milliseconds until all cards are painted."""
        await page_process.goto(self.page, address)
        await self._until(UNTIL_PAINTED)
        return float(await self.page.evaluate(PAINT_TIME))

    async def live(self) -> None:
        await self._until(UNTIL_LIVE)

    async def _until(self, expression: str) -> None:
        """Playwright's own wait evaluates text in the page, which its Content-Security-Policy forbids."""
        async with asyncio.timeout(TIMEOUT / 1000):
            while not await self.page.evaluate(expression):  # noqa: ASYNC110 (the page changes it)
                await asyncio.sleep(POLL)

    async def heap(self) -> float:
        """Bytes of JavaScript objects after a collection of garbage."""
        await self.session.send("HeapProfiler.collectGarbage")
        return float((await self.session.send("Runtime.getHeapUsage"))["usedSize"])

    async def observe(self) -> None:
        await self.page.evaluate(OBSERVE)

    async def observed(self) -> tuple[list[float], list[float]]:
        """The long tasks and the frames since `observe`, in milliseconds."""
        found = await self.page.evaluate("({ tasks: window.bench.tasks, frames: window.bench.frames })")
        return found["tasks"], found["frames"]

    async def cookie(self) -> str:
        return "; ".join(f"{cookie['name']}={cookie['value']}" for cookie in await self.context.cookies())


async def signed_in(browser: Browser, server: PageProcess, cookies: list[Any] | None = None) -> MeasuredPage:
    """An empty window with a session, without anything of the page in its cache."""
    context = await browser.new_context(viewport={"width": SIZE["width"], "height": SIZE["height"]})
    context.set_default_timeout(TIMEOUT)
    if cookies is None:
        await context.request.get(server.link)
    else:
        await context.add_cookies(cookies)
    page = await context.new_page()
    session = await context.new_cdp_session(page)
    traffic = Traffic()
    await traffic.follow(session)
    return MeasuredPage(context, page, session, traffic)
