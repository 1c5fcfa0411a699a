"""gpu-nfd-coverage: valid, partial, wrong and missing labels and NodeFeatures, for every card model.

It runs the inventory controller on a real API server. Wrong data must be reported and must keep the cards of
the node out of every pool; cards with valid data must be found.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from croupier.api import kinds
from croupier.api.gpu import convert_pool
from croupier.controllers.cards.cards import CardController, CardInformers
from croupier.controllers.shared.card_events import CardEventRecorders
from croupier.core.cards import catalogue
from croupier.core.cards.catalogue import CardModel
from croupier.core.nodes.bootstrap import MISSING as ANSWERS
from croupier.kube.client.api_client import Selection
from tests.controllers import inventory_env as inventory_envs
from tests.controllers.card_env import DeviceStore, condition
from tests.controllers.inventory_env import InventoryEnv, InventoryState, address, bus, gfd, line, pci, report
from tests.controllers.ledger_env import running, watched
from tests.polling import until_async

Tell = Callable[[InventoryEnv, str, CardModel], Coroutine[Any, Any, None]]


def labels(
    *, no_gfd: bool = False, no_pci: bool = False, nfd: dict[str, Any] | None = None, **told: Any
) -> Tell:
    """A node with the labels of GPU Feature Discovery and of NFD's rule, some of them changed."""

    async def tell(inventory_env: InventoryEnv, node: str, model: CardModel) -> None:
        found = {} if no_gfd else gfd(model, **told)
        cards = {} if no_pci else pci(model, **(nfd or {}))
        await inventory_env.node(node, {**found, **cards})

    return tell


def feature(
    count: int | None = 2, *, spec: dict[str, Any] | None = None, node: dict[str, Any] | None = None
) -> Tell:
    """A NodeFeature with the PCI bus and GPU Feature Discovery's labels; `node` are additional labels."""

    async def tell(inventory_env: InventoryEnv, name: str, model: CardModel) -> None:
        found = None if count is None else bus(model, count)
        await inventory_env.feature(name, found, gfd(model) if spec is None else spec)
        await inventory_env.node(name, node)

    return tell


def agent(*, text: str | None = None, labels_too: Tell | None = None, **known: Any) -> Tell:
    """A node whose agent reports two cards, with additional labels."""

    async def tell(inventory_env: InventoryEnv, node: str, model: CardModel) -> None:
        await inventory_env.beat(report(node, model=model, **known), text)
        await (labels_too(inventory_env, node, model) if labels_too is not None else inventory_env.node(node))

    return tell


async def plugin_only(inventory_env: InventoryEnv, node: str, model: CardModel) -> None:
    await inventory_env.node(node, gpus=2)


async def sign_only(inventory_env: InventoryEnv, node: str, model: CardModel) -> None:
    await inventory_env.node(node, {"feature.node.kubernetes.io/pci-10de.present": "true"})


MISSING, SYNCED, NOTHING = "NodeFeatureMissing", "InventorySynced", "NoDevicesDiscovered"
RIGHT: dict[str, Tell] = {
    "labels": labels(),
    "nodefeature": feature(),
    "both": feature(node=None, spec=None),
    "agent": agent(),
    "agent-and-labels": agent(labels_too=labels()),
    "agent-and-nodefeature": agent(labels_too=feature()),
}
WRONG: dict[str, tuple[Tell, int, str]] = {
    "one-class-missing": (labels(nfd={"class_": None}), 2, "missing: gpu.deckhouse.io/device.01.class"),
    "no-memory": (labels(memory=None), 2, "missing: nvidia.com/gpu.memory"),
    "no-product": (labels(product=None), 2, "nvidia.com/gpu.product"),
    "no-discovery": (labels(no_gfd=True), 2, "nvidia.com/gpu.count, nvidia.com/gpu.product"),
    "no-bus": (labels(no_pci=True), 2, "no source lists the cards"),
    "no-mig": (labels(mig_capable=None), 2, "missing: nvidia.com/mig.capable"),
    "memory-a-word": (labels(memory="lots"), 2, "nvidia.com/gpu.memory is 'lots', which is not a number"),
    "memory-zero": (labels(memory="0"), 2, "nvidia.com/gpu.memory is 0"),
    "count-too-high": (labels(count="3"), 2, "nvidia.com/gpu.count is 3"),
    "count-a-word": (labels(count="two"), 2, "nvidia.com/gpu.count is 'two'"),
    "compute-a-word": (labels(compute_major="x"), 2, "nvidia.com/gpu.compute.major is 'x'"),
    "capable-maybe": (labels(mig_capable="maybe"), 2, "neither true nor false"),
    "strategy-unknown": (labels(mig_strategy="some"), 2, "not none, single or mixed"),
    "other-vendor": (labels(nfd={"vendor": "1002"}), 1, "device.01.vendor is 1002"),
    "audio-class": (labels(nfd={"class_": "0403"}), 1, "device.01.class is 0403"),
    "device-no-hex": (labels(nfd={"device": "wxyz"}), 2, "which is not four hexadecimal digits"),
    "feature-without-discovery": (feature(spec={}), 2, "nvidia.com/gpu.count"),
    "feature-without-bus": (feature(None), 2, "no source lists the cards"),
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
    "agent-against-count": (agent(labels_too=labels(count="4")), 2, "the node's agent sees 2"),
    "agent-against-product": (agent(labels_too=labels(product="Riva-TNT2")), 2, "gpu.product is Riva-TNT2"),
    "agent-against-memory": (agent(labels_too=labels(memory="32")), 2, "nvidia.com/gpu.memory is 32"),
    "agent-against-device": (
        agent(labels_too=labels(nfd={"device": "dead"})),
        2,
        "PCI device dead is listed",
    ),
    "agent-against-bus": (agent(labels_too=feature(3)), 2, "NodeFeature lists 3 cards"),
    "agent-unreadable": (agent(text="{", labels_too=labels()), 2, "cannot be read"),
    "agent-without-driver": (agent(cards=(), driver=""), 0, "found no driver"),
    "plugin-only": (plugin_only, 0, "offers nvidia.com/gpu: 2"),
    "sign-only": (sign_only, 0, "no source lists the cards"),
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
"""Cases in which the PCI addresses of the cards are known."""


def names(node: str, by_address: bool, count: int) -> list[str]:
    if not by_address:
        return [f"{node}-gpu-{index}" for index in range(count)]
    return [f"{node}-{address(index).replace(':', '-').replace('.', '-')}" for index in range(count)]


@pytest.mark.parametrize("model", catalogue.MODELS, ids=lambda model: model.name)
async def test_valid_data_is_found_and_wrong_data_is_reported(inventory_env, model):
    """All cases for one model, and the cases that depend on the model for the others."""
    chosen = WRONG if model.name == "H100" else {case: WRONG[case] for case in OF_MODEL}

    def node(case: str) -> str:
        return f"{case}-{model.pci_device}"

    right = {case: names(node(case), case in BY_ADDRESS, 2) for case in RIGHT}
    wrong = {case: names(node(case), case in BY_ADDRESS, WRONG[case][1]) for case in chosen}
    expected = {node(case): (cards, SYNCED) for case, cards in right.items()}
    expected |= {node(case): (cards, MISSING) for case, cards in wrong.items()}
    told = {**RIGHT, **{case: tell for case, (tell, _, _) in chosen.items()}}

    # Before the controller runs: otherwise a card with labels would first be named by its index.
    await inventory_envs.in_parallel(tell(inventory_env, node(case), model) for case, tell in told.items())
    async with inventory_env.works():
        shown = await inventory_env.show(expected)

    for case, cards in right.items():
        found_as_told(case, shown[node(case)], cards, model)
    for case, (_, _, words) in chosen.items():
        found = shown[node(case)]
        assert words in found.incomplete.message, case
        for device in found.devices.values():
            assert words in convert_pool.obstacle(device, found.inventory), f"{case}: kept out of pools"


def found_as_told(case: str, shown: InventoryState, cards: list[str], model: CardModel) -> None:
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
    assert "incomplete" not in convert_pool.obstacle(device, shown.inventory), case


async def test_nodes_without_cards_get_no_inventory(inventory_env):
    await inventory_env.node("cpu-only", {"kubernetes.io/os": "linux"})
    await inventory_env.beat(report("empty", cards=()))
    await inventory_env.node("empty")
    async with inventory_env.works():
        shown = await inventory_env.show({"empty": ((), NOTHING)})

        assert shown["empty"].incomplete.status == "True"
        assert await inventory_env.inventory("cpu-only") is None


async def test_corrected_labels_clear_the_condition(inventory_env):
    await inventory_env.node("mended", {**gfd(memory="lots"), **pci(class_=None)})
    async with inventory_env.works():
        cards = names("mended", False, 2)
        await inventory_env.shows("mended", *cards, reason=MISSING)
        await inventory_env.has_event("mended", "GPUNodeFeatureMissing")
        await inventory_env.relabel("mended", {**gfd(), **pci()})
        shown = await inventory_env.show({"mended": (cards, SYNCED)})

        assert (shown["mended"].incomplete.status, shown["mended"].incomplete.message) == ("False", "")


async def test_removed_labels_remove_no_card(inventory_env):
    told = {**gfd(), **pci()}
    await inventory_env.node("hiccup", told)
    async with inventory_env.works():
        cards = names("hiccup", False, 2)
        await inventory_env.shows("hiccup", *cards)
        for card in cards:
            await inventory_env.occupied(card, "Withdrawn")
        await inventory_env.relabel("hiccup", dict.fromkeys(told))
        await inventory_env.shows("hiccup", *cards, reason=NOTHING)


async def test_an_agent_distinguishes_mixed_models(inventory_env):
    t4 = catalogue.find("T4")
    await inventory_env.beat(report("mixed", line(0), line(1, t4)))
    await inventory_env.node("mixed", gfd(count=2))
    async with inventory_env.works():
        cards = names("mixed", True, 2)
        await inventory_env.shows("mixed", *cards)
        found = await inventory_env.devices("mixed")

        assert [found[card].status.hardware.product for card in cards] == [
            inventory_envs.H100.product,
            t4.product,
        ]


@contextlib.asynccontextmanager
async def cards_join(inventory_env: InventoryEnv, node: str) -> AsyncIterator[None]:
    """Run the card controller on a node that is ready except for its inventory."""
    async with contextlib.AsyncExitStack() as stack:

        async def informer(kind: Any, selection: Selection) -> Any:
            return await stack.enter_async_context(watched(inventory_env.api, kind, selection))

        sources = CardInformers(
            devices=await informer(kinds.GPU_DEVICES, Selection()),
            inventories=await informer(kinds.GPU_NODE_INVENTORIES, Selection()),
            pools=await informer(kinds.GPU_POOLS, Selection()),
            nodes=await informer(kinds.NODES, Selection(fields=f"metadata.name={node}")),
            leases=await informer(kinds.LEASES, Selection(inventory_env.namespace)),
        )
        joining = CardController(
            sources, inventory_env.api, recorders=CardEventRecorders(inventory_env.api), ledgers=DeviceStore()
        )
        await stack.enter_async_context(running(joining.run(asyncio.Event())))
        yield


async def fit(inventory_env: InventoryEnv, node: str) -> None:
    """Mark the node as ready, as the bootstrap controller does."""
    answers = [condition(name, False) for name in ANSWERS]
    body = {"metadata": {"name": node}, "status": {"bootstrap": {"phase": "Ready"}, "conditions": answers}}
    await inventory_env.api.apply(
        kinds.GPU_NODE_INVENTORIES, body, field_manager="gpu-bootstrap-controller", subresource="status"
    )


async def test_a_card_joins_no_pool_before_its_labels_are_correct(inventory_env):
    node, pool = "guarded", "takes-all"
    (card,) = names(node, True, 1)
    await inventory_env.beat(report(node, line(0)))
    await inventory_env.node(node, gfd(count=1, memory="32"))
    spec = {"allocation": {"mode": "Exclusive"}, "deviceAssignment": {"requireAnnotation": False}}
    await inventory_env.api.create(kinds.GPU_POOLS, {"metadata": {"name": pool}, "spec": spec})

    async def pending() -> str:
        found = await inventory_env.inventory(node)
        judged = inventory_envs.condition(found, "UnassignedDevice") if found is not None else None
        return judged.message if judged is not None and judged.status == "True" else ""

    async def serves() -> str:
        device = (await inventory_env.devices(node))[card]
        return device.status.pool_ref.name if device.status.pool_ref is not None else ""

    try:
        async with inventory_env.works(), cards_join(inventory_env, node):
            await inventory_env.shows(node, card, reason=MISSING)
            await fit(inventory_env, node)
            await inventory_env.occupied(card, "Withdrawn")
            await until_async(pending, "the card to wait", inventory_envs.TIMEOUT)
            assert not await serves()

            await inventory_env.relabel(node, gfd(count=1))
            await until_async(serves, "the card to join", inventory_envs.TIMEOUT)
    finally:
        await inventory_env.api.delete(kinds.GPU_POOLS, pool)
