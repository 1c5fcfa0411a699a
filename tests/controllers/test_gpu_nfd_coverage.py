"""gpu-nfd-coverage: right, partial, wrong and missing labels and NodeFeatures, for every card we know.

On a real API server, with the inventory at work. What is wrong must be noticed, named, and keep the node's
cards out of every pool; what is right must be found, card by card.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from croupier.api import kinds
from croupier.api.gpu import pooling
from croupier.controllers.cards.cards import CardController, Sources
from croupier.controllers.cards.reporters import Reporters
from croupier.core.cards import catalogue
from croupier.core.cards.catalogue import CardModel
from croupier.core.nodes.bootstrap import MISSING as ANSWERS
from croupier.kube.client import Selection
from tests.controllers import inventory_world as stocks
from tests.controllers.card_stage import Shelf, condition
from tests.controllers.inventory_world import (
    Shown,
    Stock,
    address,
    bus,
    gfd,
    line,
    pci,
    report,
)
from tests.controllers.world import running, watched
from tests.kube.waiting import until_async

Tell = Callable[[Stock, str, CardModel], Coroutine[Any, Any, None]]


def labels(
    *, no_gfd: bool = False, no_pci: bool = False, nfd: dict[str, Any] | None = None, **told: Any
) -> Tell:
    """A node with the labels of GPU Feature Discovery and of NFD's rule, some of them changed."""

    async def tell(stock: Stock, node: str, model: CardModel) -> None:
        found = {} if no_gfd else gfd(model, **told)
        cards = {} if no_pci else pci(model, **(nfd or {}))
        await stock.node(node, {**found, **cards})

    return tell


def feature(
    count: int | None = 2, *, spec: dict[str, Any] | None = None, node: dict[str, Any] | None = None
) -> Tell:
    """A NodeFeature with the PCI bus and GPU Feature Discovery's labels; `node` are labels beside it."""

    async def tell(stock: Stock, name: str, model: CardModel) -> None:
        found = None if count is None else bus(model, count)
        await stock.feature(name, found, gfd(model) if spec is None else spec)
        await stock.node(name, node)

    return tell


def agent(*, text: str | None = None, beside: Tell | None = None, **known: Any) -> Tell:
    """A node whose agent reports two cards, with labels beside it."""

    async def tell(stock: Stock, node: str, model: CardModel) -> None:
        await stock.beat(report(node, model=model, **known), text)
        await (beside(stock, node, model) if beside is not None else stock.node(node))

    return tell


async def plugin_only(stock: Stock, node: str, model: CardModel) -> None:
    await stock.node(node, gpus=2)


async def sign_only(stock: Stock, node: str, model: CardModel) -> None:
    await stock.node(node, {"feature.node.kubernetes.io/pci-10de.present": "true"})


MISSING, SYNCED, NOTHING = "NodeFeatureMissing", "InventorySynced", "NoDevicesDiscovered"
RIGHT: dict[str, Tell] = {
    "labels": labels(),
    "nodefeature": feature(),
    "both": feature(node=None, spec=None),
    "agent": agent(),
    "agent-and-labels": agent(beside=labels()),
    "agent-and-nodefeature": agent(beside=feature()),
}
WRONG: dict[str, tuple[Tell, int, str]] = {
    "one-class-missing": (labels(nfd={"class_": None}), 2, "missing: gpu.deckhouse.io/device.01.class"),
    "no-memory": (labels(memory=None), 2, "missing: nvidia.com/gpu.memory"),
    "no-product": (labels(product=None), 2, "nvidia.com/gpu.product"),
    "no-discovery": (labels(no_gfd=True), 2, "nvidia.com/gpu.count, nvidia.com/gpu.product"),
    "no-bus": (labels(no_pci=True), 2, "nobody lists the cards"),
    "no-mig": (labels(mig_capable=None), 2, "missing: nvidia.com/mig.capable"),
    "memory-a-word": (labels(memory="lots"), 2, "nvidia.com/gpu.memory is 'lots', which is not a number"),
    "memory-zero": (labels(memory="0"), 2, "nvidia.com/gpu.memory is 0"),
    "count-too-high": (labels(count="3"), 2, "nvidia.com/gpu.count is 3"),
    "count-a-word": (labels(count="two"), 2, "nvidia.com/gpu.count is 'two'"),
    "compute-a-word": (labels(compute_major="x"), 2, "nvidia.com/gpu.compute.major is 'x'"),
    "capable-maybe": (labels(mig_capable="maybe"), 2, "neither true nor false"),
    "strategy-unknown": (labels(mig_strategy="some"), 2, "none of none, single and mixed"),
    "other-vendor": (labels(nfd={"vendor": "1002"}), 1, "device.01.vendor is 1002"),
    "audio-class": (labels(nfd={"class_": "0403"}), 1, "device.01.class is 0403"),
    "device-no-hex": (labels(nfd={"device": "wxyz"}), 2, "which is not four hexadecimal digits"),
    "feature-without-discovery": (feature(spec={}), 2, "nvidia.com/gpu.count"),
    "feature-without-bus": (feature(None), 2, "nobody lists the cards"),
    "feature-counts-otherwise": (feature(1), 1, "NodeFeature lists 1"),
    "feature-against-label": (
        feature(node={"nvidia.com/gpu.product": "Other"}),
        2,
        "the node's label says Other",
    ),
    "feature-against-cards": (
        feature(node=pci(count=1)),
        2,
        "the labels gpu.deckhouse.io/device.* list 1 card",
    ),
    "agent-against-count": (agent(beside=labels(count="4")), 2, "the node's agent sees 2"),
    "agent-against-product": (agent(beside=labels(product="Riva-TNT2")), 2, "gpu.product is Riva-TNT2"),
    "agent-against-memory": (agent(beside=labels(memory="32")), 2, "nvidia.com/gpu.memory is 32"),
    "agent-against-device": (agent(beside=labels(nfd={"device": "dead"})), 2, "PCI device dead is told of"),
    "agent-against-bus": (agent(beside=feature(3)), 2, "NodeFeature lists 3 cards"),
    "agent-unreadable": (agent(text="{", beside=labels()), 2, "cannot be read"),
    "agent-without-driver": (agent(cards=(), driver=""), 0, "finds no driver"),
    "plugin-only": (plugin_only, 0, "offers nvidia.com/gpu: 2"),
    "sign-only": (sign_only, 0, "nobody lists the cards"),
}

OF_MODEL = (
    "one-class-missing",
    "no-memory",
    "no-discovery",
    "memory-a-word",
    "count-too-high",
    "device-no-hex",
    "feature-counts-otherwise",
    "feature-against-label",
    "agent-against-product",
    "agent-against-memory",
    "agent-against-device",
    "plugin-only",
)
BY_ADDRESS = {case for case in (*RIGHT, *WRONG) if case.startswith("agent")} - {
    "agent-unreadable",
    "agent-without-driver",
}
"""Cases in which somebody tells where the cards sit."""


def names(node: str, by_address: bool, count: int) -> list[str]:
    if not by_address:
        return [f"{node}-gpu-{index}" for index in range(count)]
    return [f"{node}-{address(index).replace(':', '-').replace('.', '-')}" for index in range(count)]


@pytest.mark.parametrize("model", catalogue.MODELS, ids=lambda model: model.name)
async def test_what_is_right_is_found_and_what_is_wrong_is_named(stock, model):
    """Every case for one model; for the others those in which the model matters."""
    chosen = WRONG if model.name == "H100" else {case: WRONG[case] for case in OF_MODEL}

    def node(case: str) -> str:
        return f"{case}-{model.pci_device}"

    right = {case: names(node(case), case in BY_ADDRESS, 2) for case in RIGHT}
    wrong = {case: names(node(case), case in BY_ADDRESS, WRONG[case][1]) for case in chosen}
    expected = {node(case): (cards, SYNCED) for case, cards in right.items()}
    expected |= {node(case): (cards, MISSING) for case, cards in wrong.items()}
    told = {**RIGHT, **{case: tell for case, (tell, _, _) in chosen.items()}}

    # Before anybody looks: a card whose labels come before its agent goes by number until a ledger frees it.
    await stocks.at_once(tell(stock, node(case), model) for case, tell in told.items())
    async with stock.works():
        shown = await stock.show(expected)

    for case, cards in right.items():
        found_as_told(case, shown[node(case)], cards, model)
    for case, (_, _, words) in chosen.items():
        found = shown[node(case)]
        assert words in found.incomplete.message, case
        for device in found.devices.values():
            assert words in pooling.obstacle(device, found.inventory), f"{case}: kept out of pools"


def found_as_told(case: str, shown: Shown, cards: list[str], model: CardModel) -> None:
    status, device = shown.inventory.status, shown.devices[cards[1]]
    hardware = device.status.hardware
    assert status.hw.present, case
    assert status.driver.version == "570.124.06", case
    assert [one.inventory_id for one in status.hw.devices] == sorted(cards), case
    assert hardware is not None
    assert hardware.pci is not None
    assert hardware.mig is not None
    assert (hardware.product, hardware.memory_mib) == (model.product, model.memory_mib), case
    assert (hardware.pci.vendor, hardware.pci.device) == ("10de", model.pci_device), case
    assert hardware.mig.capable == model.mig_capable, case
    assert device.metadata.labels["gpu.deckhouse.io/device-index"] == "1", case
    assert "incomplete" not in pooling.obstacle(device, shown.inventory), case


async def test_nodes_without_cards_are_left_alone(stock):
    await stock.node("cpu-only", {"kubernetes.io/os": "linux"})
    await stock.beat(report("empty", cards=()))
    await stock.node("empty")
    async with stock.works():
        shown = await stock.show({"empty": ((), NOTHING)})

        assert shown["empty"].incomplete.status == "True"
        assert await stock.inventory("cpu-only") is None


async def test_what_is_put_right_is_right_again(stock):
    await stock.node("mended", {**gfd(memory="lots"), **pci(class_=None)})
    async with stock.works():
        cards = names("mended", False, 2)
        await stock.shows("mended", *cards, reason=MISSING)
        await stock.told("mended", "GPUNodeFeatureMissing")
        await stock.relabel("mended", {**gfd(), **pci()})
        shown = await stock.show({"mended": (cards, SYNCED)})

        assert (shown["mended"].incomplete.status, shown["mended"].incomplete.message) == ("False", "")


async def test_labels_that_vanish_take_no_card_with_them(stock):
    told = {**gfd(), **pci()}
    await stock.node("hiccup", told)
    async with stock.works():
        cards = names("hiccup", False, 2)
        await stock.shows("hiccup", *cards)
        for card in cards:
            await stock.occupied(card, "Withdrawn")
        await stock.relabel("hiccup", dict.fromkeys(told))
        await stock.shows("hiccup", *cards, reason=NOTHING)


async def test_mixed_models_are_told_apart_by_their_agent(stock):
    t4 = catalogue.find("T4")
    await stock.beat(report("mixed", line(0), line(1, t4)))
    await stock.node("mixed", gfd(count=2))
    async with stock.works():
        cards = names("mixed", True, 2)
        await stock.shows("mixed", *cards)
        found = await stock.devices("mixed")

        assert [found[card].status.hardware.product for card in cards] == [stocks.H100.product, t4.product]


@contextlib.asynccontextmanager
async def cards_join(stock: Stock, node: str) -> AsyncIterator[None]:
    """Whoever gives cards to pools is at work, on a node that is fit but for its inventory."""
    async with contextlib.AsyncExitStack() as stack:

        async def one(kind: Any, selection: Selection) -> Any:
            return await stack.enter_async_context(watched(stock.api, kind, selection))

        sources = Sources(
            devices=await one(kinds.GPU_DEVICES, Selection()),
            inventories=await one(kinds.GPU_NODE_INVENTORIES, Selection()),
            pools=await one(kinds.GPU_POOLS, Selection()),
            nodes=await one(kinds.NODES, Selection(fields=f"metadata.name={node}")),
            leases=await one(kinds.LEASES, Selection(stock.namespace)),
        )
        joining = CardController(sources, stock.api, reporters=Reporters(stock.api), ledgers=Shelf())
        await stack.enter_async_context(running(joining.run(asyncio.Event())))
        yield


async def fit(stock: Stock, node: str) -> None:
    """As the bootstrap controller finds a node whose driver, toolkit and monitoring are there."""
    answers = [condition(name, False) for name in ANSWERS]
    body = {"metadata": {"name": node}, "status": {"bootstrap": {"phase": "Ready"}, "conditions": answers}}
    await stock.api.apply(
        kinds.GPU_NODE_INVENTORIES, body, field_manager="gpu-bootstrap-controller", subresource="status"
    )


async def test_a_card_joins_no_pool_before_its_labels_are_right(stock):
    node, pool = "guarded", "takes-all"
    (card,) = names(node, True, 1)
    await stock.beat(report(node, line(0)))
    await stock.node(node, gfd(count=1, memory="32"))
    spec = {"allocation": {"mode": "Exclusive"}, "deviceAssignment": {"requireAnnotation": False}}
    await stock.api.create(kinds.GPU_POOLS, {"metadata": {"name": pool}, "spec": spec})

    async def pending() -> str:
        found = await stock.inventory(node)
        judged = stocks.condition(found, "UnassignedDevice") if found is not None else None
        return judged.message if judged is not None and judged.status == "True" else ""

    async def serves() -> str:
        device = (await stock.devices(node))[card]
        return device.status.pool_ref.name if device.status.pool_ref is not None else ""

    try:
        async with stock.works(), cards_join(stock, node):
            await stock.shows(node, card, reason=MISSING)
            await fit(stock, node)
            await stock.occupied(card, "Withdrawn")
            await until_async(pending, "the card to wait", stocks.PATIENCE)
            assert not await serves()

            await stock.relabel(node, gfd(count=1))
            await until_async(serves, "the card to join", stocks.PATIENCE)
    finally:
        await stock.api.delete(kinds.GPU_POOLS, pool)
