"""Discovery of cards: sources have an order of precedence, and every contradiction is reported."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.cards import features, inventory
from croupier.core.cards.features import NodeFeatureScan, ProfileFeatures
from croupier.core.cards.inventory import AgentCards
from croupier.core.model.gpu_card import GpuCard

PRODUCT = "NVIDIA-H100-80GB-HBM3"
GFD = {
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.product": PRODUCT,
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/mig.capable": "true",
}


def pci(count: int = 2, device: str = "2330") -> dict[str, str]:
    parts = {"vendor": "10de", "device": device, "class": "0302"}
    return {
        f"gpu.deckhouse.io/device.{index:02}.{part}": value
        for index in range(count)
        for part, value in parts.items()
    }


LABELS = {**GFD, **pci()}
BUS = ({"vendor": "10de", "device": "2330", "class": "0302"},) * 2


def card(index: int = 0, **known) -> GpuCard:
    told = {
        "vendor": "10de",
        "device": "2330",
        "product": PRODUCT,
        "memory_mib": 81559,
        "uuid": f"GPU-{index}",
    }
    return GpuCard(index, f"0000:{index:02x}:00.0", **{**told, **known})


def agent(*cards: GpuCard, **known) -> AgentCards:
    return AgentCards(cards or (card(0), card(1)), **{"driver": "570", **known})


AGREED = {
    "by labels": (None, LABELS, None),
    "by a scan of the bus": (None, GFD, NodeFeatureScan(devices=BUS)),
    "by NodeFeature alone": (None, {}, NodeFeatureScan(GFD, BUS)),
    "by the agent alone": (agent(), {}, None),
    "by all sources": (agent(), LABELS, NodeFeatureScan(GFD, BUS)),
    "with the product label of a shared card": (
        agent(),
        {**LABELS, "nvidia.com/gpu.product": f"{PRODUCT}-SHARED"},
        None,
    ),
    "with the product label of a MIG device": (
        agent(),
        {**LABELS, "nvidia.com/gpu.product": f"{PRODUCT}-MIG-1g.10gb", "nvidia.com/gpu.memory": "9728"},
        None,
    ),
    "with spaces in the product": (
        agent(card(product="NVIDIA H100 80GB HBM3"), card(1)),
        LABELS,
        None,
    ),
    "with a little less memory": (agent(), {**LABELS, "nvidia.com/gpu.memory": "81251"}, None),
    "with two models, one of them in labels": (
        agent(card(0), card(1, product="Tesla-T4", device="1eb8", memory_mib=15360)),
        GFD,
        None,
    ),
}


@pytest.mark.parametrize(("told", "labels", "scan"), AGREED.values(), ids=AGREED)
def test_two_cards_with_consistent_sources(told, labels, scan):
    seen = inventory.discover(told, features.read(labels, scan))

    assert [one.index for one in seen.cards] == [0, 1]
    assert {one.memory_mib for one in seen.cards} & {81559, 81251}
    assert (seen.reason, seen.message, seen.troubles) == ("InventorySynced", "", ())
    assert seen.is_complete


def test_no_source_with_a_card():
    seen = inventory.discover(None, features.read({"kubernetes.io/os": "linux"}))

    assert (seen.cards, seen.reason, seen.is_complete) == ((), "NoDevicesDiscovered", False)


def test_an_agent_without_cards_is_trusted_unless_it_has_no_driver():
    none = inventory.discover(AgentCards((), driver="570"), features.read({}))
    blind = inventory.discover(AgentCards(()), features.read({}))

    assert (none.reason, none.is_complete) == ("NoDevicesDiscovered", True)
    assert (blind.reason, blind.is_complete) == ("NodeFeatureMissing", False)


def test_all_troubles_are_reported_together():
    wrong = {"nvidia.com/gpu.memory": "lots", "nvidia.com/mig.capable": "perhaps"}
    told = features.read({**LABELS, **wrong, "gpu.deckhouse.io/device.01.class": "0403"})
    message = inventory.discover(None, told).message

    for words in (
        "gpu.memory is 'lots'",
        "mig.capable is 'perhaps'",
        "device.01.class is 0403",
        "count is 2",
    ):
        assert words in message


def test_cards_that_are_only_counted_are_listed_and_incomplete():
    seen = inventory.discover(None, features.read(GFD))

    assert [one.index for one in seen.cards] == [0, 1]
    assert not seen.is_complete
    assert "no source lists the cards" in seen.message


GONE_OR_NOT = {
    "a scan is complete": (None, {}, NodeFeatureScan({}, BUS[:1]), True),
    "a scan that contradicts the count is not": (None, GFD, NodeFeatureScan({}, BUS[:1]), False),
    "labels are complete if the count agrees": (
        None,
        {**GFD, "nvidia.com/gpu.count": "1", **pci(1)},
        None,
        True,
    ),
    "labels without a count are not": (None, pci(1), None, False),
    "an agent is complete, whatever labels say": (agent(card(0)), LABELS, None, True),
    "an unreadable report is not": (AgentCards(readable=False), LABELS, None, False),
}


@pytest.mark.parametrize(("reported", "labels", "scan", "complete"), GONE_OR_NOT.values(), ids=GONE_OR_NOT)
def test_which_sources_are_complete(reported, labels, scan, complete):
    assert inventory.discover(reported, features.read(labels, scan)).is_complete == complete


DISAGREED = {
    "more cards by labels": ({**GFD, "nvidia.com/gpu.count": "3", **pci(3)}, None, "list 3 cards"),
    "more cards by count": (
        {**LABELS, "nvidia.com/gpu.count": "3"},
        None,
        "gpu.count is 3, but the node's agent sees 2",
    ),
    "fewer cards by a scan": (
        {},
        NodeFeatureScan({}, BUS[:1]),
        "NodeFeature lists 1 card, but the node's agent sees 2",
    ),
    "another PCI device": ({**GFD, **pci(2, "dead")}, None, "PCI device dead is listed"),
    "another model": ({**LABELS, "nvidia.com/gpu.product": "Tesla-T4"}, None, "gpu.product is Tesla-T4"),
    "another memory size": ({**LABELS, "nvidia.com/gpu.memory": "40000"}, None, "gpu.memory is 40000"),
    "an invalid label": ({**LABELS, "nvidia.com/gpu.memory": "x"}, None, "gpu.memory is 'x'"),
}


@pytest.mark.parametrize(("labels", "scan", "words"), DISAGREED.values(), ids=DISAGREED)
def test_contradictions_to_the_agent_are_reported(labels, scan, words):
    seen = inventory.discover(agent(), features.read(labels, scan))

    assert seen.reason == "NodeFeatureMissing"
    assert words in seen.message
    assert len(seen.cards) == 2, "the agent is believed all the same"


def test_a_missing_index_is_reported():
    told = {key: value for key, value in {**GFD, **pci(3)}.items() if ".01." not in key}

    assert "gpu.deckhouse.io/device.01.*" in inventory.discover(None, features.read(told)).message


def test_an_inconsistent_report_is_reported():
    twins = agent(card(0), card(0, product=""), card(2, memory_mib=0))
    message = inventory.discover(twins, features.read({})).message

    assert "2 cards with index 0" in message
    assert "2 cards with PCI address 0000:00:00.0" in message
    assert "does not report the product of card 0" in message
    assert "does not report the memory of card 2" in message


def test_versions_are_read_from_full_labels_or_parts():
    old = {
        f"nvidia.com/cuda.driver.{part}": number
        for part, number in {"major": "570", "minor": "124", "rev": "06"}.items()
    }
    new = {
        "nvidia.com/cuda.driver-version.full": "570.124.06",
        "nvidia.com/cuda.runtime-version.full": "12.8",
    }
    ours = {"gpu.deckhouse.io/driver.version": "1.2", "gpu.deckhouse.io/driver.cuda-version": "3.4"}

    assert features.read(old).driver == "570.124.06"
    assert (features.read(new).driver, features.read(new).cuda) == ("570.124.06", "12.8")
    assert (features.read({**new, **ours}).driver, features.read({**new, **ours}).cuda) == ("1.2", "3.4")


def test_profiles_are_read_with_driver_names():
    told = {
        "nvidia.com/mig-1g.10gb.memory": "9728",
        "nvidia.com/mig-1g.10gb.multiprocessors": "16",
        "nvidia.com/mig-1g.10gb.me.memory": "9728",
        "nvidia.com/mig-1g.10gb.count": "7",
    }

    assert features.read(told).profiles == {
        "1g.10gb": ProfileFeatures(9728, 16),
        "1g.10gb+me": ProfileFeatures(9728, 0),
    }


@pytest.mark.parametrize(
    ("capability", "newest", "missing"),
    [((7, 5), "int8", "bf16"), ((8, 0), "bf16", "fp8"), ((9, 0), "fp8", "fp4"), ((10, 0), "fp4", "fp2")],
)
def test_number_formats_follow_from_the_compute_capability(capability, newest, missing):
    supported = inventory.precisions(*capability)

    assert newest in supported
    assert missing not in supported


KEYS = st.sampled_from(sorted({*LABELS, "nvidia.com/mig.strategy", "nvidia.com/gpu.present"}))
VALUES = st.one_of(st.sampled_from(["2", "true", "10de", "0302", "81559", PRODUCT, "0"]), st.text(max_size=8))
ANY_LABELS = st.dictionaries(KEYS, VALUES)
DEVICES = st.dictionaries(st.sampled_from(["vendor", "device", "class"]), VALUES)
SCANS = st.one_of(
    st.none(), st.builds(NodeFeatureScan, ANY_LABELS, st.one_of(st.none(), st.lists(DEVICES).map(tuple)))
)
AGENTS = st.one_of(
    st.none(),
    st.builds(
        AgentCards,
        st.lists(st.builds(card, st.integers(0, 3)), max_size=4).map(tuple),
        st.sampled_from(["", "5"]),
    ),
)


@given(ANY_LABELS, SCANS, AGENTS, st.integers(0, 3))
def test_an_inventory_is_synced_only_without_troubles(labels, scan, told, offered):
    read = features.read(labels, scan)
    seen = inventory.discover(told, read, offered)

    assert (seen.reason == "InventorySynced") == (bool(seen.cards) and not seen.troubles)
    assert bool(seen.message) == (seen.reason != "InventorySynced")
    if told is None and seen.reason == "InventorySynced":
        assert read.count == len(seen.cards)
        assert all(one.device and one.product and one.memory_mib for one in seen.cards)


@given(st.permutations(sorted(LABELS)), st.sampled_from(sorted(set(LABELS))))
def test_every_missing_required_label_is_reported(order, left_out):
    told = {key: LABELS[key] for key in order if key != left_out}
    seen = inventory.discover(None, features.read(told))

    assert seen.reason == "NodeFeatureMissing"
    assert left_out.rpartition(".")[0] in seen.message
