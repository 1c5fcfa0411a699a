"""A new operator in a real cluster: the real scheduler, controllers and agents answer what the page writes.

The operator learns why a pod waits, confirms a card in two clicks, sees the pod start, and drains another
card. Screenshots of this cluster are those of the README (`--write-screenshots -p no:randomly`).
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from bench.page_process import PageProcess
from croupier.api import kinds
from croupier.kube.client.api_client import Client
from croupier_lab import foreground, nodes, progress
from croupier_lab.foreground import LabSpec
from croupier_lab.lifecycle import LabPlan
from croupier_lab.pytest_plugin import FAILED_WITH_LAB, RUN
from tests.polling import until_async
from tests.ui.browser import axe
from tests.ui.browser import env as envs
from tests.ui.browser.env import WIDE, PageEnv

SECONDS = 40
READY = 120.0
"""Seconds for agents and controllers on a busy machine."""
POOL = "shared"
POD = "trainer"
IMAGES = Path(__file__).resolve().parents[3] / "docs/images"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(pytestconfig: pytest.Config, browser: Browser) -> AsyncIterator[PageEnv]:
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("runs Croupier in a lab of its own, but --kubeconfig selects another cluster")
    run = pytestconfig.stash[RUN]
    plan = LabPlan()
    lab = await run.private(plan)
    fleet = nodes.fleet(2, cards="H100:8", named=("gpu-worker=A100-80GB:4",))
    spec = LabSpec(plan, nodes=fleet, capacity_manager="CRD", agents=True, heartbeat=1.0)
    await foreground.populate(lab, spec, progress.to_stderr())
    async with envs.connected(lab.kubeconfig) as api:
        made = PageEnv(lab, api, browser, PageProcess(lab.kubeconfig, lab.logs / "croupier-ui.log"))
        try:
            await _prepare(made)
            await made.server.start()
            yield made
        finally:
            await made.close()
            await made.server.stop()
            await run.end(lab, keep_logs=pytestconfig.stash[FAILED_WITH_LAB])


async def _prepare(env: PageEnv) -> None:
    """A pool without cards, pods that hold shares of other cards, and a pod that fits nowhere."""
    await until_async(lambda: _are_ready(env.api, 20), "the agents to report all cards", READY, every=0.1)
    node = {"matchLabels": {"kubernetes.io/hostname": "node-1"}}
    _apply(
        env,
        {
            "apiVersion": "gpu.deckhouse.io/v1alpha1",
            "kind": "GPUPool",
            "metadata": {"name": POOL},
            "spec": {"allocation": {"mode": "MPS"}, "nodeSelector": node},
        },
    )
    _apply(env, _pod("notebook", {"gpu.mps.io/cards": "1", "gpu.mps.io/ratio": "30"}, node="node-2"))
    _apply(env, _pod("etl", {"gpu.mps.io/cards": "2", "gpu.mps.io/ratio": "60"}, node="node-2"))
    _apply(env, _pod("greedy", {"gpu.mps.io/cards": "12", "gpu.mps.io/ratio": "80"}))
    for name in ("notebook", "etl"):
        env.kubectl("wait", f"pod/{name}", "--for=condition=Ready", f"--timeout={READY:g}s")


async def _are_ready(api: Client, cards: int) -> bool:
    devices = (await api.list(kinds.GPU_DEVICES)).items
    conditions = [entry for device in devices for entry in device.status.conditions]
    ready = [entry for entry in conditions if entry.type == "ReadyForPooling" and entry.status == "True"]
    return len(ready) == cards


def _apply(env: PageEnv, body: dict[str, object]) -> None:
    env.lab.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def _pod(
    name: str, annotations: dict[str, str], limits: dict[str, str] | None = None, node: str = ""
) -> dict[str, object]:
    container = {"name": "main", "image": "any", "resources": {"limits": limits or {}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node} if node else {}},
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(env: PageEnv) -> AsyncIterator[Page]:
    yield await env.open("/", size=WIDE)


async def test_the_operator_learns_why_a_pod_waits(env: PageEnv, page: Page, pytestconfig: pytest.Config):
    await env.go(page, "/")
    await page.get_by_role("navigation").get_by_role("link", name="Waiting pods").click()
    await page.get_by_role("link", name="default/greedy").click()

    await page.get_by_text("needs 12 cards").first.wait_for()
    await page.get_by_role("heading", name="Nearest nodes").wait_for()
    told = env.lab.kubectl("get", "pod", "greedy", "-o", "jsonpath={.status.phase}").stdout
    assert told == "Pending"
    await envs.settled(page)
    await _picture(page, "waiting-pod", pytestconfig)
    await env.watch.check()


async def test_a_confirmed_card_serves_and_the_waiting_pod_starts(env: PageEnv, page: Page):
    await env.go(page, "/confirm")
    confirm = page.get_by_role("button", name="Confirm node-1-").first
    await confirm.wait_for(timeout=READY * 1000)
    card = str(await confirm.get_attribute("aria-label")).removeprefix("Confirm ")
    await confirm.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_text("The API server would accept it from you.").wait_for()
    assert await axe.violations(page) == []
    await dialog.get_by_role("button", name="Write it").click()

    await dialog.get_by_text("All done.").wait_for(timeout=READY * 1000)
    await dialog.get_by_role("button", name="Close").last.click()
    _apply(env, _pod(POD, {}, {f"gpu.deckhouse.io/{POOL}": "50"}))
    await _until_shown(page, f"[...window.croupier.model().holders.values()].some((h) => h.pod === '{POD}')")
    await env.go(page, f"/pods/default/{POD}")
    await page.get_by_role("link", name=card).first.wait_for()
    await page.get_by_text("50 %").first.wait_for()
    env.kubectl("wait", f"pod/{POD}", "--for=condition=Ready", f"--timeout={READY:g}s")
    await env.watch.check()


async def test_a_drained_card_keeps_its_pod_and_takes_no_other(env: PageEnv, page: Page):
    holds = "c.holders.some((h) => window.croupier.model().holders.get(h.number)?.pod === 'etl')"
    card = str(await page.evaluate(f"[...window.croupier.model().cards.values()].find((c) => {holds}).id"))
    await env.go(page, f"/cards/{card}")
    await page.get_by_role("button", name="Drain").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("fan is loud")
    await dialog.get_by_text("The API server would accept it from you.").wait_for()
    assert "default/etl" in await dialog.inner_text()
    await dialog.get_by_role("button", name="Write it").click()

    await _until_shown(page, f"window.croupier.model().cards.get('{card}').drained")
    await dialog.get_by_role("button", name="Close").last.click()
    assert env.lab.kubectl("get", "pod", "etl", "-o", "jsonpath={.status.phase}").stdout == "Running"
    await page.get_by_text("fan is loud").first.wait_for()
    await env.watch.check()


async def test_the_map_shows_all_of_it(env: PageEnv, page: Page, pytestconfig: pytest.Config):
    await env.go(page, "/cards?by=none")

    assert len(await page.evaluate("Object.keys(window.croupier.boxes())")) == 20
    await envs.settled(page)
    await _picture(page, "map", pytestconfig)
    await env.watch.check()


async def _until_shown(page: Page, expression: str) -> None:
    await envs.until_page(page, expression, "the page to show it", within=READY)


async def _picture(page: Page, name: str, pytestconfig: pytest.Config) -> None:
    """A screenshot of the documentation: written on request, and always there."""
    path = IMAGES / f"{name}.png"
    if pytestconfig.getoption("--write-screenshots"):
        IMAGES.mkdir(exist_ok=True)
        await page.screenshot(path=path)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG"), f"{path} is no picture: run this test with --write-screenshots"
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    assert (width, height) == WIDE
