"""A simulated node has the status and labels that a kubelet, GFD and NFD would write."""

from datetime import UTC, datetime
from typing import Any

import pytest

from croupier.core.cards import catalogue
from croupier_lab import nodes
from croupier_lab.nodes import InvalidNodeOptionError, SimulatedNode

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def fleet(count: int = 0, cards: str | None = None, *named: str) -> list[SimulatedNode]:
    return nodes.fleet(count, cards=cards, named=named)


def manifest(text: str = "gpu-worker=A100-80GB:4") -> dict[str, Any]:
    return nodes.manifest(fleet(0, None, text)[0], NOW)


def test_numbered_nodes_are_alike_and_spread_over_three_zones():
    made = fleet(4, "H100:8")

    assert [node.name for node in made] == ["node-1", "node-2", "node-3", "node-4"]
    assert {node.cards for node in made} == {nodes.SimulatedNodeCards(catalogue.find("H100"), 8)}
    assert [node.zone for node in made] == ["zone-a", "zone-b", "zone-c", "zone-a"]


def test_named_nodes_join_the_numbered_ones():
    made = fleet(1, None, "gpu-sim-cluster-worker=SIM-70GB:4", "gpu-worker2=t4:1")

    assert [node.name for node in made] == ["node-1", "gpu-sim-cluster-worker", "gpu-worker2"]
    assert [node.cards and node.cards.model.name for node in made] == [None, "SIM-70GB", "T4"]


def test_a_node_reports_its_cards_as_allocatable():
    status = manifest()["status"]

    assert status["allocatable"] == status["capacity"]
    assert status["allocatable"]["nvidia.com/gpu"] == "4"
    assert status["allocatable"]["cpu"] == "64"
    assert status["allocatable"]["memory"] == "256Gi"
    assert status["allocatable"]["pods"] == "110"


def test_a_node_without_cards_has_no_gpu_labels():
    plain = nodes.manifest(fleet(1)[0], NOW)

    assert "nvidia.com/gpu" not in plain["status"]["allocatable"]
    assert not [label for label in plain["metadata"]["labels"] if "nvidia" in label or "deckhouse" in label]


def test_the_labels_describe_the_cards():
    labels = manifest()["metadata"]["labels"]

    expected = {
        "kubernetes.io/hostname": "gpu-worker",
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/gpu.memory": "81920",
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.compute.major": "8",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/cuda.driver-version.major": "570",
        "gpu.deckhouse.io/device.00.vendor": "10de",
        "gpu.deckhouse.io/device.03.device": "20b2",
        "gpu.deckhouse.io/device.03.class": "0302",
    }
    assert expected.items() <= labels.items()
    assert "gpu.deckhouse.io/device.04.vendor" not in labels


def test_a_card_without_mig_is_labelled():
    labels = manifest("small=T4:1")["metadata"]["labels"]

    assert labels["nvidia.com/mig.capable"] == "false"
    assert "nvidia.com/mig.strategy" not in labels


def test_kwok_manages_the_node():
    assert manifest()["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"


def test_it_is_ready_from_the_start():
    ready = [each for each in manifest()["status"]["conditions"] if each["type"] == "Ready"]

    assert [(each["status"], each["lastHeartbeatTime"]) for each in ready] == [
        ("True", "2026-01-02T03:04:05Z")
    ]


@pytest.mark.parametrize("model", catalogue.MODELS, ids=lambda model: model.name)
def test_every_label_of_every_model_is_one_kubernetes_accepts(model):
    for value in manifest(f"x={model.name}:16")["metadata"]["labels"].values():
        assert len(value) <= 63
        assert value[0].isalnum()
        assert value[-1].isalnum()


INVALID_OPTIONS = {
    "no model": ((0, None, "gpu-worker"), "write NAME=MODEL:COUNT"),
    "no count": ((0, None, "gpu-worker=H100"), "write MODEL:COUNT"),
    "no name": ((0, None, "=H100:8"), "write NAME=MODEL:COUNT"),
    "count in words": ((0, None, "gpu-worker=H100:many"), "write MODEL:COUNT"),
    "no cards": ((1, "H100:0"), "1 to 16 cards"),
    "a hundred cards": ((1, "H100:100"), "1 to 16 cards"),
    "an unknown model": ((1, "H1000:8"), "did you mean H100?"),
    "an invalid node name": ((0, None, "GPU_Worker=H100:8"), "is not a valid node name"),
    "a duplicate name": ((0, None, "a=H100:8", "a=T4:1"), "duplicate name"),
    "the name of a numbered node": ((2, None, "node-2=T4:1"), "duplicate name"),
    "a negative number": ((-1, None), "cannot be negative"),
}


@pytest.mark.parametrize(("wish", "sentence"), INVALID_OPTIONS.values(), ids=INVALID_OPTIONS)
def test_invalid_options_are_rejected_with_one_sentence(wish, sentence):
    with pytest.raises(InvalidNodeOptionError) as refusal:
        fleet(*wish)

    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)
