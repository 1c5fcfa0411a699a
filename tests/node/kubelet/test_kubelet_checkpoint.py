"""Devices of init containers from the kubelet's checkpoint, which is optional."""

import json
from pathlib import Path
from typing import Any

import pytest

from croupier.core.nodes.kubelet_assignments import ContainerRequest, KubeletAssignment
from croupier.node.kubelet import checkpoint as kubelet_notes
from croupier.node.kubelet.checkpoint import KubeletCheckpoint
from tests.core.kubelet_env import GPU, name, pod, share

BOTH = (ContainerRequest("init", {GPU: 1}), ContainerRequest("main", {GPU: 1}))
A = pod("a", {GPU: 1}, share(0), containers=BOTH)
MAIN = KubeletAssignment("team/a", "main", GPU, (name(1),))


class Shown:
    async def holdings(self) -> tuple[KubeletAssignment, ...]:
        return (MAIN,)


def note(uid: str, container: str, *ids: str) -> dict[str, Any]:
    where = {"PodUID": uid, "ContainerName": container, "ResourceName": GPU, "AllocResp": "CgA="}
    return {**where, "DeviceIDs": {"-1": list(ids[:1]), "0": list(ids[1:]) or None}}


def written(*entries: dict[str, Any]) -> str:
    data = {"PodDeviceEntries": list(entries) or None, "RegisteredDevices": {GPU: [name(0), name(1)]}}
    return json.dumps({"Data": data, "Checksum": 4242})


INIT = KubeletAssignment("team/a", "init", GPU, (name(0),))
NOTES = {
    "of an init container": (written(note("uid-a", "init", name(0))), (INIT,)),
    "of two NUMA nodes": (
        written(note("uid-a", "init", name(1), name(0))),
        (KubeletAssignment("team/a", "init", GPU, (name(0), name(1))),),
    ),
    "of a listed container": (written(note("uid-a", "main", name(1))), ()),
    "of a finished pod": (written(note("uid-before", "init", name(0))), ()),
    "of nothing": (written(), ()),
    "none yet": (None, ()),
    "truncated": ("{", ()),
    "nested too deeply": ('{"Data": ' + "[" * 100_000, ()),
    "of an unknown format": ('{"Data": {"PodDeviceEntries": [{"DeviceIDs": ["a"]}]}}', ()),
}


@pytest.mark.parametrize(("text", "more"), NOTES.values(), ids=NOTES)
async def test_assignments_are_completed_from_the_checkpoint(
    tmp_path: Path, text: str | None, more: tuple[KubeletAssignment, ...]
) -> None:
    if text is not None:
        (tmp_path / kubelet_notes.FILE).write_text(text)

    assert await KubeletCheckpoint(Shown(), tmp_path, lambda: [A]).holdings() == (MAIN, *more)
