"""An operator's tasks in the browser, by few clicks (goal U10) and by keyboard alone (goal U7).

No controller runs here: the tests see what the page writes, and nothing changes it afterwards.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page

from bench import page_process
from tests.polling import until
from tests.ui.browser import axe, world
from tests.ui.browser import env as envs
from tests.ui.browser.env import PageEnv

SECONDS = 30
ASSIGNMENT = "gpu.deckhouse.io/assignment"
DRAIN = "gpu.deckhouse.io/drain"
FREE_CARD = "gpu-a-1-0000-14-00-0"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(page_env: PageEnv) -> AsyncIterator[PageEnv]:
    await world.write_namespaces(page_env.api)
    await world.write(page_env.api)
    await page_env.server.start()
    yield page_env


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(env: PageEnv) -> AsyncIterator[Page]:
    yield await env.open("/")


class Clicks:
    """Counts the clicks of a task."""

    def __init__(self) -> None:
        self.count = 0

    async def on(self, target: Locator) -> None:
        self.count += 1
        await target.click()


def annotations(env: PageEnv, card: str) -> dict[str, str]:
    found: dict[str, str] = env.get("gpudevice", card)["metadata"].get("annotations", {})
    return found


def dialog(page: Page) -> Locator:
    return page.get_by_role("dialog")


async def write(page: Page) -> Locator:
    """The button that writes, once the preview is there."""
    await dialog(page).get_by_text("The API server would accept it from you.").wait_for()
    return dialog(page).get_by_role("button", name="Write it")


async def close(page: Page) -> None:
    await dialog(page).get_by_role("button", name="Close").last.click()


async def test_a_waiting_card_is_confirmed_in_two_clicks(env: PageEnv, page: Page):
    card, clicks = world.OFFERED[0], Clicks()
    await env.go(page, "/confirm")

    await clicks.on(page.get_by_role("button", name=f"Confirm {card}"))
    button = await write(page)
    shown = await dialog(page).inner_text()
    assert "joins pool shared" in shown
    assert "Pools before and after" in shown
    assert f"croupier assign {card} shared" in shown
    assert ASSIGNMENT not in annotations(env, card), "a preview writes nothing"
    assert await axe.violations(page) == []
    await clicks.on(button)

    await until(lambda: annotations(env, card).get(ASSIGNMENT) == "shared", "the card to be assigned")
    assert clicks.count == 2
    managers = {entry["manager"] for entry in _managed_fields(env, card)}
    assert "croupier-ui" in managers
    await close(page)
    _offer_again(env)
    await env.watch.check()


def _offer_again(env: PageEnv) -> None:
    """The tests run in any order."""
    env.kubectl("annotate", "gpudevice", *world.OFFERED, f"{ASSIGNMENT}-")


def _managed_fields(env: PageEnv, card: str) -> list[dict[str, Any]]:
    metadata = env.get("gpudevice", card, "--show-managed-fields")["metadata"]
    found: list[dict[str, Any]] = metadata["managedFields"]
    return found


async def test_all_waiting_cards_are_confirmed_in_four_clicks(env: PageEnv, page: Page):
    clicks = Clicks()
    await env.go(page, "/")

    await clicks.on(page.get_by_role("navigation").get_by_role("link", name="Waiting for you"))
    await clicks.on(page.get_by_label("Select all"))
    await clicks.on(page.get_by_role("button", name="selected card"))
    await clicks.on(await write(page))

    def assigned() -> bool:
        return {annotations(env, card).get(ASSIGNMENT) for card in world.OFFERED} == {"shared"}

    await until(assigned, "all cards to be assigned")
    assert clicks.count == 4
    await close(page)
    _offer_again(env)
    await env.watch.check()


async def test_it_takes_two_clicks_to_learn_why_a_pod_waits(env: PageEnv, page: Page):
    clicks = Clicks()
    await env.go(page, "/")

    await clicks.on(page.get_by_role("navigation").get_by_role("link", name="Waiting pods"))
    await clicks.on(page.get_by_role("link", name=world.BIG))

    await page.get_by_text("needs 9 free cards of pool shared").first.wait_for()
    await page.get_by_role("heading", name="Nearest nodes").wait_for()
    assert clicks.count == 2
    await env.watch.check()


async def test_a_card_is_drained_and_given_back_by_keyboard_alone(env: PageEnv, page: Page):
    await env.go(page, "/cards")
    await page.get_by_role("grid", name="Map of the cards").focus()
    await _walk_to(page, "card 4 of node gpu-a-1,")
    await page.keyboard.press("Space")
    await page.keyboard.press("d")
    await dialog(page).get_by_label("Reason").focus()
    await page.keyboard.type("memory errors, ticket 12")
    await write(page)
    await page.keyboard.press("Control+Enter")

    await until(lambda: annotations(env, FREE_CARD).get(DRAIN) == "memory errors, ticket 12", "the drain")
    back = dialog(page).get_by_role("button", name="Take it back")
    await back.focus()
    await page.keyboard.press("Enter")
    await write(page)
    await page.keyboard.press("Control+Enter")

    await until(lambda: DRAIN not in annotations(env, FREE_CARD), "the card to be given back")
    await page.keyboard.press("Escape")
    await env.watch.check()


async def _walk_to(page: Page, card: str) -> None:
    """Press arrow keys until a screen reader would read the card."""
    for _ in range(60):
        if (await page.get_by_role("gridcell").first.inner_text()).startswith(card):
            return
        await page.keyboard.press("ArrowRight")
    raise AssertionError(f"the focus never came to {card}")


async def test_a_card_is_confirmed_by_keyboard_alone(env: PageEnv, page: Page):
    card = world.OFFERED[0]
    await env.go(page, "/confirm")
    await page.get_by_role("button", name=f"Confirm {card}").focus()
    await page.keyboard.press("Enter")
    await write(page)
    await page.keyboard.press("Control+Enter")

    await until(lambda: annotations(env, card).get(ASSIGNMENT) == "shared", "the card to be assigned")
    await page.keyboard.press("Escape")
    await dialog(page).wait_for(state="detached")
    _offer_again(env)
    await env.watch.check()


async def test_two_keys_tell_why_a_pod_waits(env: PageEnv, page: Page):
    await env.go(page, "/")
    await page.keyboard.press("e")
    await page.get_by_role("heading", name="Waiting pods").wait_for()
    await page.keyboard.press("e")

    await page.get_by_role("heading", name="Request").wait_for()
    assert "/pods/" in page.url
    await env.watch.check()


async def test_the_past_is_shown_as_it_was(env: PageEnv, page: Page):
    await env.go(page, "/history")
    drained = f"window.croupier.model().cards.get('{FREE_CARD}').drained"
    env.kubectl("annotate", "gpudevice", FREE_CARD, f"{DRAIN}=for the history", "--overwrite")
    await envs.until_page(page, drained, "the drain")

    await page_process.goto(page, f"{env.server.origin}/history")
    await envs.live(page)
    await page.get_by_role("slider", name="Time").press("Home")
    await envs.until_page(page, "window.croupier.model().status === 'history'", "the past")
    assert not await page.evaluate(drained)
    await page.get_by_role("button", name="Back to now").first.click()
    await envs.until_page(page, f"window.croupier.model().status === 'live' && {drained}", "the present")
    table = await page.evaluate(
        "fetch('/api/v1/history.csv?from=0&to=9999999999').then((found) => found.text())"
    )
    assert table.startswith("card,pod,share,from,to\n")
    assert "team-a/trainer,whole" in table
    env.kubectl("annotate", "gpudevice", FREE_CARD, f"{DRAIN}-")
    await env.watch.check()


async def test_a_held_card_says_for_whom_it_waits(env: PageEnv, page: Page):
    await env.go(page, "/cards/gpu-a-1-0000-12-00-0")

    await page.get_by_role("button", name="Unassign").click()

    await write(page)
    shown = await dialog(page).inner_text()
    assert "happens later" in shown
    assert "team-a/notebook" in shown
    assert "team-b/etl" in shown
    await dialog(page).get_by_role("button", name="Cancel").click()
    assert "gpu.deckhouse.io/drain" not in annotations(env, "gpu-a-1-0000-12-00-0")
    await env.watch.check()


async def test_a_pool_is_shared_in_another_way(env: PageEnv, page: Page):
    await env.go(page, "/pools/training")
    before = env.get("gpupool", "training")["spec"]["allocation"]

    await page.get_by_role("button", name="Change sharing").click()
    await dialog(page).get_by_role("radio", name="TimeSlice").check()
    button = await write(page)
    assert env.get("gpupool", "training")["spec"]["allocation"] == before
    await button.click()

    await until(
        lambda: env.get("gpupool", "training")["spec"]["allocation"]["mode"] == "TimeSlice", "the new sharing"
    )
    await close(page)
    await env.watch.check()


async def test_a_reservation_is_released(env: PageEnv, page: Page):
    await env.go(page, "/reservations")

    row = page.get_by_role("row").filter(has_text="next-week")
    await row.get_by_role("button", name="Release").click()
    await (await write(page)).click()

    def gone() -> bool:
        left = env.get("reservations", "-n", "team-a")["items"]
        return not [item for item in left if item["metadata"]["name"] == "next-week"]

    await until(gone, "the Reservation to be deleted")
    await close(page)
    await env.watch.check()


async def test_what_if_draws_copies_by_two_strategies_and_writes_nothing(env: PageEnv, page: Page):
    def stored() -> list[str]:
        kinds = "nodereservations,pods,reservations.mps.nvidia.com,gpudevices,gpupools"
        return [item["metadata"]["resourceVersion"] for item in env.get(kinds, "-A")["items"]]

    before = stored()
    await env.go(page, "/what-if?asks=percent&percent=50&copies=4&strategies=Spread,BinPack")

    await page.get_by_text("4 of 4 fit").nth(1).wait_for()
    await page.get_by_role("heading", name="Spread").wait_for()
    await page.get_by_role("heading", name="BinPack").wait_for()
    assert stored() == before
    await env.watch.check()


async def test_cards_are_assigned_by_drag_as_well(env: PageEnv, page: Page):
    card = "gpu-c-2-0000-10-00-0"
    await env.go(page, "/cards")
    box = (await page.evaluate("window.croupier.boxes()"))[card]
    await page.keyboard.down("Control")
    await page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    await page.keyboard.up("Control")
    target = await page.get_by_role("link", name="shared").last.bounding_box()
    assert target is not None

    await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    await page.mouse.down()
    await page.mouse.move(target["x"] - 20, target["y"], steps=5)
    await page.mouse.move(target["x"] + 10, target["y"] + target["height"] / 2, steps=5)
    await page.mouse.up()

    await dialog(page).get_by_text("to shared").first.wait_for()
    await dialog(page).get_by_role("button", name="Cancel").click()
    assert ASSIGNMENT not in annotations(env, card)
    await env.watch.check()


async def test_positions_do_not_move_when_holders_change(env: PageEnv, page: Page):
    await env.go(page, "/cards")
    before = await page.evaluate("window.croupier.boxes()")

    env.kubectl("annotate", "gpudevice", FREE_CARD, f"{DRAIN}=look", "--overwrite")
    await envs.until_page(page, f"window.croupier.model().cards.get('{FREE_CARD}').drained", "the drain")
    await envs.settled(page)

    assert await page.evaluate("window.croupier.boxes()") == before
    env.kubectl("annotate", "gpudevice", FREE_CARD, f"{DRAIN}-")
    await env.watch.check()
