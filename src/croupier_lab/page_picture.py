"""A picture of a web page, taken by chromium once the page says that it is ready.

chromium's own `--screenshot` takes the picture before a live page has its data, so this speaks the DevTools
protocol: JSON messages over a WebSocket on loopback.
"""

import asyncio
import base64
import contextlib
import os
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp

CHROMIUM: Final = "chromium"
SIZE: Final = "1400,900"
TIMEOUT: Final = 60.0
STOP_TIMEOUT: Final = 5.0
POLL: Final = 0.1


async def take(link: str, ready: str, target: Path) -> bool:
    """Open the link, wait until the JavaScript expression `ready` is true, and write a PNG.

    False if there is no picture in time.
    """
    try:
        async with (
            asyncio.timeout(TIMEOUT),
            _browser() as address,
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=0) as socket,
        ):
            page = _Page(socket)
            await page.open(link)
            await page.until(ready)
            image = await page.call("Page.captureScreenshot")
    except (OSError, TimeoutError, aiohttp.ClientError):
        return False
    _write(target, base64.b64decode(image["data"]))
    return True


def _write(target: Path, image: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(image)


class _Page:
    """A tab of the browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._session: dict[str, str] = {}

    async def open(self, link: str) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        await self.call("Page.navigate", url=link)

    async def until(self, expression: str) -> None:
        while True:
            answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
            if answer["result"].get("value"):
                return
            await asyncio.sleep(POLL)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json(
            {"id": self._number, "method": method, "params": params, **self._session}
        )
        while (message := await self._socket.receive_json()).get("id") != self._number:
            pass  # an event
        if "error" in message:
            raise OSError(f"{method}: {message['error']['message']}")
        result: dict[str, Any] = message["result"]
        return result


@contextlib.asynccontextmanager
async def _browser() -> AsyncIterator[str]:
    """The WebSocket address of a headless browser, which ends with the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = await asyncio.create_subprocess_exec(
            *(CHROMIUM, "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *(["--no-sandbox"] if os.getuid() == 0 else ()),
            *(f"--window-size={SIZE}", f"--user-data-dir={profile}", "--remote-debugging-port=0"),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            start_new_session=True,
        )
        try:
            yield await _address(browser, Path(profile) / "DevToolsActivePort")
        finally:
            await _stop(browser)


async def _address(browser: Process, file: Path) -> str:
    while not (found := _read(file)):
        if browser.returncode is not None:
            raise OSError(f"{CHROMIUM} ended with exit code {browser.returncode}")
        await asyncio.sleep(POLL)
    return found


def _read(file: Path) -> str:
    """The port and the path that the browser has written; empty if it has not yet."""
    port, _, path = file.read_text().partition("\n") if file.exists() else ("", "", "")
    return f"ws://127.0.0.1:{port}{path.strip()}" if path else ""


async def _stop(browser: Process) -> None:
    if browser.returncode is None:
        browser.terminate()
    try:
        await asyncio.wait_for(browser.wait(), STOP_TIMEOUT)
    except TimeoutError:
        browser.kill()
        await browser.wait()
