"""The container edits for real cards, read from the node: device nodes, MIG capabilities, CDI names.

Only existing devices are included: a runtime refuses to start a container with a missing device or CDI name.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from croupier.node.cards.card_driver import ContainerEdits, DeviceNode, HeldDevice

CDI_KIND: Final = "nvidia.com/gpu"

_SHARED_NODES: Final = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_MIG_MINORS: Final = Path("proc/driver/nvidia-caps/mig-minors")
_MIG_MINOR_LINE: Final = re.compile(r"gpu(\d+)/gi(\d+)/(?:ci(\d+)/)?access (\d+)")
_CDI_FOLDERS: Final = (Path("etc/cdi"), Path("var/run/cdi"))
_TOOLKIT: Final = tuple(
    Path(path)
    for path in (
        "usr/bin/nvidia-container-runtime",
        "usr/bin/nvidia-container-cli",
        "usr/bin/nvidia-ctk",
        "usr/local/nvidia/toolkit/nvidia-container-runtime",
    )
)


def has_toolkit(host: Path) -> bool:
    """Whether the node has a container toolkit or CDI specifications."""
    return any((host / path).exists() for path in _TOOLKIT) or any(_specs(host))


def container_edits(
    host: Path, held: Sequence[HeldDevice], instances: Mapping[str, tuple[int, int]]
) -> ContainerEdits:
    """`instances` maps the UUID of a MIG device to its GPU instance and compute instance."""
    uuids = [device.uuid for device in held]
    nodes = dict.fromkeys(
        (*_SHARED_NODES, *(node for device in held for node in _nodes(host, device, instances)))
    )
    existing = tuple(
        DeviceNode(f"/dev/{node}", f"/dev/{node}") for node in nodes if (host / "dev" / node).exists()
    )
    return ContainerEdits(
        env={"NVIDIA_VISIBLE_DEVICES": ",".join(uuids) or "void"},
        device_nodes=existing if held else (),
        cdi=_cdi(host, uuids),
    )


def _nodes(host: Path, held: HeldDevice, instances: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    minor = held.card.minor
    if minor is None:
        return
    yield f"nvidia{minor}"
    if held.slot is not None and held.slot.uuid in instances:
        gpu_instance, compute_instance = instances[held.slot.uuid]
        for gpu, gi, ci, capability in _capabilities(host):
            if (gpu, gi) == (minor, gpu_instance) and ci in (None, compute_instance):
                yield f"nvidia-caps/nvidia-cap{capability}"


def _capabilities(host: Path) -> Iterator[tuple[int, int, int | None, int]]:
    """For example `gpu0/gi1/ci0/access 31`: capability 31 gives access to that compute instance."""
    for match in _MIG_MINOR_LINE.finditer(_text(host / _MIG_MINORS)):
        gpu, gi, ci, capability = match.groups()
        yield int(gpu), int(gi), None if ci is None else int(ci), int(capability)


def _cdi(host: Path, uuids: Iterable[str]) -> tuple[str, ...]:
    """The CDI names of all devices, or none if one is missing: device nodes are used then."""
    described = [text for path in _specs(host) if CDI_KIND in (text := _text(path))]
    names = tuple(f"{CDI_KIND}={uuid}" for uuid in uuids)
    known = all(any(uuid in text for text in described) for uuid in uuids)
    return names if described and known else ()


def _specs(host: Path) -> Iterator[Path]:
    for folder in _CDI_FOLDERS:
        for pattern in ("*.yaml", "*.json"):
            yield from sorted((host / folder).glob(pattern))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
