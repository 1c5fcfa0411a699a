"""The pod of a process, by the names that kubelets give to cgroups."""

import pytest

from croupier.node.cards import process_owner

UID = "0b1c2d3e-aaaa-bbbb-cccc-0123456789ab"
SYSTEMD = UID.replace("-", "_")
STATIC = UID.replace("-", "")

CGROUPS = {
    "cgroupfs": (f"0::/kubepods/besteffort/pod{UID}/4f5c", UID),
    "guaranteed": (f"0::/kubepods/pod{UID}/4f5c", UID),
    "systemd": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD}.slice/cri-4f5c.scope",
        UID,
    ),
    "a cgroupRoot": (f"0::/nodes/kubepods/pod{UID}/4f5c", UID),
    "another cgroup namespace": (f"0::/../../kubepods-pod{SYSTEMD}.slice/cri-4f5c.scope", UID),
    "cgroup v1": (f"12:pids:/kubepods/pod{UID}/4f5c\n11:memory:/kubepods/pod{UID}/4f5c", UID),
    "a static pod": (f"0::/kubepods/burstable/pod{STATIC}/4f5c", STATIC),
    "the pod's own cgroup": (f"0::/kubepods/pod{UID}", UID),
    "a service": ("0::/system.slice/some.service", ""),
    "a similar name": (f"0::/system.slice/tripod{UID}.service", ""),
    "nothing": ("", ""),
}


@pytest.mark.parametrize(("text", "expected"), CGROUPS.values(), ids=CGROUPS)
def test_the_pod_of_a_cgroup(text, expected):
    assert process_owner.pod_uid(text) == expected


def test_a_process_of_no_pod_has_its_name_and_an_ended_one_has_none(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text("0::/user.slice\n")
    (tmp_path / "7/comm").write_text("python\n")

    assert process_owner.owner(tmp_path, 7) == "python"
    assert process_owner.owner(tmp_path, 8) == ""
