"""Container edits for real cards contain all existing device nodes and no missing ones."""

from pathlib import Path

import pytest

from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.mig import MigDevice
from croupier.node.cards import nvml_edits
from croupier.node.cards.card_driver import ContainerEdits, HeldDevice

CARD = GpuCard(0, "0000:10:00.0", "GPU-a", minor=0)
OTHER = GpuCard(1, "0000:11:00.0", "GPU-b", minor=3)
SLOT = MigDevice("1g.10gb", 2, 1, "MIG-x")
MINORS = """\
config 1
monitor 2
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu0/gi1/ci1/access 14
gpu0/gi2/access 21
gpu3/gi1/access 402
"""


@pytest.fixture
def host(tmp_path):
    for node in (
        "nvidiactl",
        "nvidia-uvm",
        "nvidia0",
        "nvidia3",
        *(f"nvidia-caps/nvidia-cap{n}" for n in (12, 13, 14)),
    ):
        path = tmp_path / "dev" / node
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    minors = tmp_path / "proc/driver/nvidia-caps/mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text(MINORS)
    return tmp_path


def describe(host: Path, *uuids: str, folder: str = "var/run/cdi", kind: str = "nvidia.com/gpu") -> None:
    path = host / folder / "nvidia.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"kind: {kind}\ndevices:\n" + "".join(f"- name: {uuid}\n" for uuid in uuids))


def nodes(edits: ContainerEdits) -> list[str]:
    return [node.host for node in edits.device_nodes]


def test_whole_cards_have_their_device_nodes_and_existing_shared_nodes(host):
    edits = nvml_edits.container_edits(host, [HeldDevice(CARD), HeldDevice(OTHER)], {})

    assert edits.env == {"NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}
    assert nodes(edits) == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia3"]
    assert edits.cdi == ()


def test_a_mig_device_has_its_two_capability_nodes(host):
    edits = nvml_edits.container_edits(host, [HeldDevice(CARD, SLOT)], {"MIG-x": (1, 0)})

    assert edits.env == {"NVIDIA_VISIBLE_DEVICES": "MIG-x"}
    assert nodes(edits)[2:] == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap12",
        "/dev/nvidia-caps/nvidia-cap13",
    ]


def test_a_container_without_devices_sees_none(host):
    edits = nvml_edits.container_edits(host, [], {})

    assert edits.env == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert edits.device_nodes == ()
    assert edits.cdi == ()


def test_cdi_names_are_used_if_all_devices_are_described(host):
    describe(host, "GPU-a", "GPU-b")

    assert nvml_edits.container_edits(host, [HeldDevice(CARD), HeldDevice(OTHER)], {}).cdi == (
        "nvidia.com/gpu=GPU-a",
        "nvidia.com/gpu=GPU-b",
    )


def test_an_incomplete_cdi_specification_is_not_used(host):
    describe(host, "GPU-a", folder="etc/cdi")

    assert nvml_edits.container_edits(host, [HeldDevice(CARD), HeldDevice(OTHER)], {}).cdi == ()


def test_a_cdi_specification_of_another_kind_is_not_used(host):
    describe(host, "GPU-a", kind="example.com/other")

    assert nvml_edits.container_edits(host, [HeldDevice(CARD)], {}).cdi == ()


def test_the_toolkit_is_detected_by_its_program_or_a_cdi_specification(host):
    assert not nvml_edits.has_toolkit(host)

    describe(host, "GPU-a")
    assert nvml_edits.has_toolkit(host)

    (host / "var/run/cdi/nvidia.yaml").unlink()
    (host / "usr/bin").mkdir(parents=True)
    (host / "usr/bin/nvidia-ctk").touch()
    assert nvml_edits.has_toolkit(host)
