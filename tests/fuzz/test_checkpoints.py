"""Any checkpoint of the kubelet is a list of assignments, or a ValueError with one sentence."""

from croupier.node.kubelet import checkpoint
from tests.fuzz import inputs

ENTRY = {
    "PodUID": "u",
    "ContainerName": "main",
    "ResourceName": "nvidia.com/gpu",
    "DeviceIDs": {"-1": ["g0"], "0": None},
}
FILE = {
    "Data": {"PodDeviceEntries": [ENTRY], "RegisteredDevices": {"nvidia.com/gpu": ["g0"]}},
    "Checksum": 42,
}


def test_a_file_is_read_or_refused(fuzz):
    def check(text: bytes) -> None:
        try:
            entries = checkpoint.decode(text)
        except ValueError as refusal:
            inputs.assert_is_sentence(str(refusal))
            return
        assert all(list(entry.ids) == sorted(entry.ids) for entry in entries)

    fuzz(inputs.json_bodies(FILE), check)
