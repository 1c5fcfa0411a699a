"""Random changes of ledgers, and the comparison of the page's model with `croupier ledger -o json`."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from playwright.async_api import Page

from bench import card_objects
from croupier.api import kinds
from croupier.capacity import ledger_data, snapshot
from croupier.kube.client.api_client import Client
from tests.polling import until_async

Ledger = dict[str, list[dict[str, Any]]]

NAMESPACES: Final = ("team-a", "team-b")
MODES: Final = ("Percent", "Exclusive", "MIG", "TimeSlice")


@dataclass
class Churn:
    """Changes of the NodeReservations of these nodes, drawn from `chance`."""

    api: Client
    chance: random.Random
    nodes: list[str]
    pods: int = 0

    async def change(self, times: int) -> None:
        for _ in range(times):
            node = self.chance.choice(self.nodes)
            record = await self.api.get(kinds.NODE_RESERVATIONS.raw, node)
            self._edit(record["spec"])
            await self.api.update(kinds.NODE_RESERVATIONS.raw, record)

    def _edit(self, spec: dict[str, Any]) -> None:
        cards = spec["cards"]
        for key in ("held", "reservations"):
            spec.pop(key, None)
        edit = self.chance.choice(
            (self._share, self._share, self._share, self._free, self._mode, self._health)
        )
        edit(self.chance.choice(cards))

    def _holder(self) -> str:
        self.pods += 1
        return f"{self.chance.choice(NAMESPACES)}/job-{self.pods}/00000000-0000-0000-0000-{self.pods:012d}"

    def _share(self, card: dict[str, Any]) -> None:
        """Give a part of the card to another pod, if there is room."""
        mode = card["mode"]
        if mode == "MIG":
            self.chance.choice(card["slots"])["holder"] = self._holder()
            return
        holders = card.setdefault("holders", {})
        capacity = {"Percent": card.get("capacityPercent"), "TimeSlice": card.get("slices")}.get(mode) or 100
        left = capacity - sum(holders.values())
        if mode == "Exclusive":
            card["holders"] = {self._holder(): 100}
        elif left > 0:
            holders[self._holder()] = self.chance.randint(1, left)

    def _free(self, card: dict[str, Any]) -> None:
        card.pop("holders", None)
        for slot in card.get("slots", ()):
            slot.pop("holder", None)

    def _mode(self, card: dict[str, Any]) -> None:
        mode = self.chance.choice(MODES)
        for key in ("holders", "slots", "slices", "capacityPercent"):
            card.pop(key, None)
        entry = {
            "Percent": card_objects.percent(),
            "Exclusive": card_objects.exclusive(),
            "MIG": card_objects.mig("1g.10gb", 1, [""] * self.chance.randint(1, 7)),
            "TimeSlice": card_objects.time_slices(self.chance.randint(1, 16)),
        }[mode]
        card |= {**entry, "epoch": card["epoch"] + 1}

    def _health(self, card: dict[str, Any]) -> None:
        card |= {"healthy": not card.get("healthy", True), "epoch": card["epoch"] + 1}


async def expected(api: Client) -> Ledger:
    """The ledger as `croupier ledger NODE -o json` shows the cards of each node."""
    seen = await snapshot.take(api, datetime.now(UTC))
    return {
        node: by_index(ledger_data.node_details(seen, node)["devices"])
        for node in seen.ledgers
        if seen.ledgers[node].cards
    }


async def shown(page: Page) -> Ledger:
    """The ledger as the page has it."""
    ledger: Mapping[str, list[dict[str, Any]]] = await page.evaluate("window.croupier.ledger()")
    return {node: by_index(devices) for node, devices in ledger.items()}


def by_index(devices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_plain(device) for device in sorted(devices, key=lambda device: int(device["index"]))]


def _plain(device: Mapping[str, Any]) -> dict[str, Any]:
    """Without the order of holders, and without what the page has in its rows of cards."""
    data = {name: value for name, value in device.items() if name != "withheld"}
    if "holders" in data:
        data["holders"] = sorted((one["holder"], one["share"]) for one in data["holders"])
    return data


async def until_equal(api: Client, page: Page, *, within: float) -> None:
    """Wait until the page has the ledger of the API server; the difference if it does not come."""
    wanted = await expected(api)

    async def equal() -> bool:
        return await shown(page) == wanted

    try:
        await until_async(equal, "the page to have the ledger", within, every=0.05)
    except AssertionError as late:
        found = await shown(page)
        lines = [
            f"{node}: ledger {wanted.get(node)}, page {found.get(node)}"
            for node in sorted(wanted.keys() | found.keys())
            if wanted.get(node) != found.get(node)
        ]
        raise AssertionError(f"{late}\n" + "\n".join(lines)) from None
