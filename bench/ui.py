"""The page at 500 nodes with eight cards: loading, following changes, and what the server needs for it.

The alternative to following changes is to send everything again, as other pages do: its bytes are measured in
the same run. Rendering is measured in headless Chromium without a GPU on the same cores as the API server.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import psutil
from playwright.async_api import Browser

from bench import card_objects, env, page_process, ui_browser, ui_fleet, ui_streams
from bench.env import BenchEnv
from bench.figures import OURS, Figure
from bench.page_process import PageProcess
from bench.ui_browser import MeasuredPage
from bench.ui_fleet import FULL, QUICK, LedgerLoad, PageSizes
from bench.ui_streams import PageClient, Streams
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier_lab.controlplane import API_COMPONENTS, API_SERVER
from croupier_lab.lifecycle import LabPlan

RESEND: Final = "resending everything"
RESENDS: Final = 5
"""Times a second, as KueueViz sends."""
SLOW_FRAME: Final = 33.4
"""Milliseconds."""
NO_TAINTS: Final = {API_SERVER: ("--disable-admission-plugins=TaintNodesByCondition",)}


@dataclass
class PageBench:
    """A filled cluster, its page, and a client with the session of the browser."""

    sizes: PageSizes
    api: Client
    browser: Browser
    server: PageProcess
    view: MeasuredPage
    client: PageClient

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.server.pid)

    @property
    def load(self) -> LedgerLoad:
        return LedgerLoad(self.api, self.sizes)


def figure(what: str, unit: str, value: float, **others: float) -> Figure:
    named = {name.replace("_", " "): amount for name, amount in others.items()}
    return Figure("ui", what, unit, {OURS: value, **named})


async def page(on: BenchEnv) -> list[Figure]:
    sizes = QUICK if on.quick else FULL
    async with _raised(on, sizes) as bench:
        figures = await _loading(bench)
        figures += await _questions(bench)
        figures += await _latency(bench)
        figures += await _under_load(bench)
        figures += await _memory(bench)
        figures += await _many_streams(bench)
    return figures


@asynccontextmanager
async def _raised(on: BenchEnv, sizes: PageSizes) -> AsyncIterator[PageBench]:
    plan = LabPlan(parts=API_COMPONENTS, extra=NO_TAINTS)
    async with (
        on.raised(plan) as lab,
        api_client.connect(config.load(lab.kubeconfig)) as api,
        page_process.chromium() as browser,
    ):
        await env.install_crds(lab)
        await ui_fleet.write(api, sizes, on.show)
        server = PageProcess(lab.kubeconfig, lab.logs / "croupier-ui.log")
        await server.start()
        try:
            view = await ui_browser.signed_in(browser, server)
            async with ui_streams.connected(server, await view.cookie()) as client:
                await _until_complete(client, sizes)
                yield PageBench(sizes, api, browser, server, view, client)
        finally:
            await server.stop()


async def _until_complete(client: PageClient, sizes: PageSizes) -> None:
    """Wait until the server has all cards and names."""
    async with asyncio.timeout(120):
        while True:
            cards, names = [(await client.snapshot(part))[0]["tables"] for part in ui_streams.PARTS]
            if len(cards["cards"]) == sizes.all_cards and len(names["holders"]) == sizes.pods:
                return
            await asyncio.sleep(0.3)


async def _loading(bench: PageBench) -> list[Figure]:
    address = f"{bench.server.origin}/cards"
    cookies = await bench.view.context.cookies()
    cold, warm, answers = [], [], []
    for _ in range(bench.sizes.loads):
        other = await ui_browser.signed_in(bench.browser, bench.server, list(cookies))
        cold.append(await other.paint(address))
        await other.live()
        traffic = other.traffic
        warm.append(await other.paint(address))
        await other.context.close()
    for _ in range(bench.sizes.loads):
        began = time.perf_counter()
        await bench.client.snapshot("cards")
        answers.append((time.perf_counter() - began) * 1000)
    size = f"{bench.sizes.all_cards:,} cards"
    return [
        figure(f"cold load until {size} are painted", "ms", statistics.median(cold)),
        figure(f"warm load until {size} are painted", "ms", statistics.median(warm)),
        figure("snapshot of the cards, answered by the server", "ms", statistics.median(answers)),
        figure("HTML, scripts and styles of a cold load", "kB", traffic.shell / 1000),
        figure("snapshot of the cards, compressed", "kB", traffic.cards / 2000),
        figure("snapshot of the names, compressed", "kB", traffic.names / 2000),
    ]


async def _questions(bench: PageBench) -> list[Figure]:
    cards = ui_fleet.spare_cards(bench.sizes, 64)
    assign = {"action": "assign", "cards": cards, "pool": ui_fleet.POOLS[0]}
    form = {"cards": 1, "percent": 50, "profile": "", "pool": ui_fleet.POOLS[0], "units": 0}
    what_if = {"form": {**form, "namespace": ui_fleet.NAMESPACES[0]}, "copies": 100}
    previews = [(await bench.client.post("/api/v1/preview", assign))[1] for _ in range(bench.sizes.loads)]
    places = [(await bench.client.post("/api/v1/what-if", what_if))[1] for _ in range(bench.sizes.loads)]
    return [
        figure(f"preview of an assignment of {len(cards)} cards", "ms", statistics.median(previews)),
        figure(f"what-if of 100 copies, {bench.sizes.nodes} nodes", "ms", statistics.median(places)),
    ]


async def _latency(bench: PageBench) -> list[Figure]:
    """From the answer to the PUT of a ledger until other pixels are on the canvas, one change at a time."""
    await bench.view.paint(f"{bench.server.origin}/cards")
    await bench.view.live()
    load, delays = bench.load, []
    for number in range(bench.sizes.repeats):
        card = number * 37 % bench.sizes.all_cards
        await load.put(card, 100)
        name = card_objects.name(ui_fleet.node_name(card // bench.sizes.cards), card % bench.sizes.cards)
        await asyncio.sleep(0.3)  # until the change before is painted
        await bench.view.page.evaluate(ui_browser.WATCH_PIXELS, name)
        await load.put(card, 30)
        answered = time.time() * 1000
        delays.append(max(0.1, await bench.view.page.evaluate("window.changed") - answered))
    return [
        figure("ledger written until painted, p50", "ms", statistics.median(delays)),
        figure("ledger written until painted, p99", "ms", _percentile(delays, 99)),
    ]


async def _under_load(bench: PageBench) -> list[Figure]:
    view, seconds = bench.view, bench.sizes.load_seconds
    sizes = [(await bench.client.snapshot(part))[1] for part in ui_streams.PARTS]
    await view.observe()
    before, cpu = view.traffic.stream, _cpu(bench.process)
    rate = await bench.load.run(seconds)
    spent, sent = _cpu(bench.process) - cpu, view.traffic.stream - before
    tasks, frames = await view.observed()
    slow = sum(frame > SLOW_FRAME for frame in frames) / max(1, len(frames)) * 100
    one = 100 * spent / seconds
    streams = Streams(bench.client)
    await streams.open(20)
    cpu = _cpu(bench.process)
    await bench.load.run(seconds / 3)
    more = 100 * (_cpu(bench.process) - cpu) / (seconds / 3)
    await streams.close()
    return [
        figure("changes a second that were reached", "/s", rate),
        figure("stream of one page", "kB/s", sent / seconds / 1000, **{RESEND: sum(sizes) * RESENDS / 1000}),
        figure("longest task of the page", "", max(tasks, default=0.0)),
        figure("frames over 33 ms, percent", "", slow),
        figure("CPU of the server with one page, percent of a core", "", one),
        figure("CPU of each further client, percent of a core", "", max(0.0, more - one) / 20),
    ]


async def _memory(bench: PageBench) -> list[Figure]:
    half = bench.sizes.churn_seconds / 2
    load = bench.load
    await load.run(half)
    first = await bench.view.heap()
    await load.run(half)
    last = await bench.view.heap()
    return [
        figure("memory of the page after the changes", "MB", last / 1e6),
        figure("its growth in the second half, percent", "", max(0.0, 100 * (last - first) / first)),
        figure("memory of the server", "MiB", bench.process.memory_info().rss / 2**20),
    ]


async def _many_streams(bench: PageBench) -> list[Figure]:
    """All streams get the changes; the browser has one of the streams that the server allows."""
    await bench.view.context.close()
    await asyncio.sleep(1.0)  # until the server has noticed
    streams = Streams(bench.client)
    await streams.open(bench.sizes.streams)
    await bench.load.run(min(10.0, bench.sizes.load_seconds))
    await asyncio.sleep(1.0)
    served = sum(events > 0 for events in streams.events)
    resets = streams.resets
    await streams.close()
    return [figure("streams served at a time", "", served), figure("streams that were reset", "", resets)]


def _cpu(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return spent.user + spent.system


def _percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]
