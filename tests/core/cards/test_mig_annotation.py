"""Parsing of `run.ai/mig.config`: every refusal names the path and the reason."""

from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.cards import catalogue, mig_annotation
from croupier.core.cards.mig_annotation import LayoutTargets
from croupier.core.model import mig
from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.refusal import Refusal
from tests.core.mig_builders import layout

Entry: TypeAlias = dict[str, object]

SEVEN = layout("1g.10gb:7")
MEDIUM = layout("2g.20gb:2,3g.30gb:1")


def cards(*models: str) -> list[GpuCard]:
    found = [catalogue.find(model) for model in models]
    return [
        GpuCard(
            index,
            product=model.product,
            vendor=catalogue.NVIDIA,
            device=model.pci_device,
            kinds=model.kinds,
        )
        for index, model in enumerate(found)
    ]


FOUR = cards(*["SIM-70GB"] * 4)


def entry(
    devices: object = "all", enabled: object = True, mig_devices: object = None, **more: object
) -> Entry:
    said = {"devices": devices, "mig-enabled": enabled, "mig-devices": mig_devices, **more}
    return {key: value for key, value in said.items() if value is not None}


def config(*entries: object, **others: object) -> Entry:
    return {"version": "v1", "mig-configs": {"selected": list(entries), **others}}


def cut(data: object, there: list[GpuCard] = FOUR) -> LayoutTargets | Refusal:
    wishes = mig_annotation.read(data)
    return wishes if isinstance(wishes, Refusal) else mig_annotation.targets(wishes, there)


UNDERSTOOD = {
    "a list with a profile for each device": (
        config(entry([0, 1, 2, 3], mig_devices=["1g.10gb"] * 7)),
        dict.fromkeys(range(4), SEVEN),
    ),
    "a map": (config(entry(mig_devices={"1g.10gb": 7})), dict.fromkeys(range(4), SEVEN)),
    "one card, the others unchanged": (
        config(entry([0], mig_devices={"2g.20gb": 2})),
        {0: layout("2g.20gb:2")},
    ),
    "different layouts for cards": (
        config(
            entry([0], mig_devices={"1g.10gb": 7}), entry([2, 3], mig_devices={"2g.20gb": 2, "3g.30gb": 1})
        ),
        {0: SEVEN, 2: MEDIUM, 3: MEDIUM},
    ),
    "whole again": (config(entry([1], enabled=False)), {1: mig.WHOLE}),
    "whole again, with an empty list": (config(entry([1], enabled=False, mig_devices={})), {1: mig.WHOLE}),
    "the selected one of several": (
        config(entry([0], mig_devices={"1g.10gb": 7}), other=[entry(mig_devices={"9g.90gb": 1})]),
        {0: SEVEN},
    ),
    "a single one under any name": (
        {"version": "v1", "mig-configs": {"mine": [entry([3], mig_devices={"1g.10gb": 7})]}},
        {3: SEVEN},
    ),
    "one that refers to another": (
        {
            "version": "v1",
            "mig-configs": {"selected": "mine", "mine": [entry([3], mig_devices={"1g.10gb": 7})]},
        },
        {3: SEVEN},
    ),
    "balanced by name": ("all-balanced", dict.fromkeys(range(4), layout("1g.10gb:2,2g.20gb:1,3g.30gb:1"))),
    "filled by name": (
        {"version": "v1", "mig-configs": {"selected": "all-2g.20gb"}},
        dict.fromkeys(range(4), layout("2g.20gb:3")),
    ),
    "disabled by name": ("all-disabled", dict.fromkeys(range(4), mig.WHOLE)),
}


@pytest.mark.parametrize(("data", "targets"), UNDERSTOOD.values(), ids=UNDERSTOOD)
def test_valid_annotations(data, targets):
    assert cut(data) == targets


def test_a_filter_selects_models():
    there = cards("H100", "A30", "T4")
    data = config(
        entry(mig_devices={"1g.10gb": 7}, **{"device-filter": ["0x233010DE"]}),
        entry(mig_devices={"1g.6gb": 4}, **{"device-filter": "0x20b710de"}),
    )

    assert cut(data, there) == {0: SEVEN, 1: layout("1g.6gb:4")}


def test_a_named_layout_depends_on_the_model():
    assert cut("all-balanced", cards("H100", "A30", "T4")) == {
        0: layout("1g.10gb:2,2g.20gb:1,3g.40gb:1"),
        1: layout("1g.6gb:2,2g.12gb:1"),
    }


REFUSED: dict[str, tuple[object, str]] = {
    "nothing": (None, "the annotation must be a mapping"),
    "a list": ([1], "the annotation must be a mapping"),
    "an unknown name": ("all-fast", "write entries, or one of all-disabled, all-balanced and all-<profile>"),
    "no version": ({"mig-configs": {}}, "version is missing; it must be v1"),
    "another version": ({"version": "v2", "mig-configs": {}}, 'version is "v2"'),
    "an unknown key at the top": ({"version": "v1", "mig-config": {}}, "mig-config is unknown"),
    "no layout": ({"version": "v1", "mig-configs": {}}, "mig-configs names no layout"),
    "several and none selected": (
        {"version": "v1", "mig-configs": {"a": [], "b": []}},
        "mig-configs names a, b; name the layout to apply selected",
    ),
    "several names that are no line": (
        {"version": "v1", "mig-configs": {"a\nb": [], "c" * 99: []}},
        f"mig-configs names a\\nb, {'c' * 40}…; name the layout",
    ),
    "a name that is no line": (
        {"version": "v1", "mig-configs": {"a\nb": None}},
        "mig-configs.a\\nb must be a list of 1 to 64 entries",
    ),
    "no entries": (config(), "mig-configs.selected must be a list of 1 to 64 entries"),
    "an entry that is a string": (config("all"), "mig-configs.selected[0] must be a mapping"),
    "a misspelt key": (
        config(entry(mig_devices={"1g.10gb": 1}, mode=1)),
        "mig-configs.selected[0].mode is unknown",
    ),
    "no devices": (config(entry(None, mig_devices={"1g.10gb": 1})), "[0].devices is missing"),
    "devices as a string": (config(entry("0,1", mig_devices={"1g.10gb": 1})), '[0].devices is "0,1"'),
    "a device that is not a number": (config(entry([0, True])), '[0].devices has "True"'),
    "a device below zero": (config(entry([-1])), "an index must be a whole number from 0"),
    "a device twice": (config(entry([0, 0])), "[0].devices names a card twice"),
    "a device that does not exist": (
        config(entry([0, 4], mig_devices={"1g.10gb": 1})),
        "[0].devices names card 4; the node has 0, 1, 2, 3",
    ),
    "enabled as a string": (config(entry(enabled="yes")), '[0].mig-enabled is "yes"'),
    "enabled without devices": (config(entry()), "[0].mig-devices is empty"),
    "disabled with devices": (
        config(entry(enabled=False, mig_devices={"1g.10gb": 1})),
        "mig-enabled is false",
    ),
    "no profile": (
        config(entry(mig_devices=["small"])),
        '[0].mig-devices[0] has "small", which is not a MIG profile',
    ),
    "a count that is not a number": (config(entry(mig_devices={"1g.10gb": 1.5})), '.1g.10gb is "1.5"'),
    "a count of zero": (config(entry(mig_devices={"1g.10gb": 0})), "it must be a whole number from 1 to 8"),
    "an invalid filter": (
        config(entry(mig_devices={"1g.10gb": 1}, **{"device-filter": "H100"})),
        "device-filter is",
    ),
    "two entries for one card": (
        config(entry(mig_devices={"1g.10gb": 1}), entry([2], mig_devices={"1g.10gb": 2})),
        "mig-configs.selected[1] and mig-configs.selected[0] both name card 2",
    ),
    "an impossible geometry": (
        config(entry([1], mig_devices={"3g.30gb": 2, "2g.20gb": 1})),
        "selected[0]: card 1 (Croupier-Simulated-70GB): 2g.20gb:1,3g.30gb:2 needs 8 compute slices",
    ),
    "a profile of another model": (config(entry(mig_devices={"3g.40gb": 1})), "the card has no MIG profile"),
    "a name with a profile of another model": ("all-3g.40gb", "the card has no MIG profile"),
}


@pytest.mark.parametrize(("data", "sentence"), REFUSED.values(), ids=REFUSED)
def test_invalid_annotations_are_refused_with_a_reason(data, sentence):
    refused = cut(data)

    assert isinstance(refused, Refusal)
    assert str(refused).startswith("annotation run.ai/mig.config: ")
    assert sentence in str(refused)
    assert "\n" not in str(refused)


def test_one_impossible_card_refuses_the_whole_annotation():
    data = config(entry([0], mig_devices={"1g.10gb": 7}), entry([1], mig_devices={"7g.70gb": 2}))

    assert isinstance(cut(data), Refusal)


def test_a_card_without_mig_can_only_be_whole():
    there = cards("T4", "H100")

    assert "card 0 (Tesla-T4): this card model does not support MIG" in str(
        cut(config(entry(mig_devices={"1g.10gb": 1})), there)
    )
    assert cut(config(entry(enabled=False)), there) == {0: mig.WHOLE, 1: mig.WHOLE}


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["v1", "all", "1g.10gb"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["version", "mig-configs", "selected", "devices", "mig-enabled", "mig-devices", "1g.10gb"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(plain | st.lists(plain).map(lambda entries: config(*entries)))
def test_any_input_is_parsed_or_refused_in_one_line(data):
    found = cut(data)

    if isinstance(found, Refusal):
        assert "\n" not in str(found)
    else:
        for index, wanted in found.items():
            assert not isinstance(mig.place(FOUR[index].kinds, wanted), Refusal)
