"""CPU counters of cgroups: artificial trees of both versions and drivers, and the tree of this machine."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.market.estimation import CPUSample
from croupier.node.market import cgroup, cgroup_files, cgroup_paths
from croupier.node.market.cgroup import CgroupTree
from croupier.node.market.cgroup_files import CgroupQuota, CgroupThrottling
from croupier.node.market.cgroup_paths import ContainerCgroup

ID = "4f5c" * 16
UID = "0b7e6d2a-1111-2222-3333-444455556666"
PLACE = ContainerCgroup(UID, "Burstable", ID)
AT = 7_000_000

V1 = {
    "cpuacct.usage": "2500000999\n",
    "cpu.stat": "nr_periods 120\nnr_throttled 30\nthrottled_time 4000000123\nnr_bursts 0\n",
    "cpu.cfs_quota_us": "20000\n",
    "cpu.cfs_period_us": "100000\n",
}
V2 = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 1\nnr_periods 120\nnr_throttled 30\nthrottled_usec 4000000\n",
    "cpu.max": "20000 100000\n",
}
SAID = CPUSample(AT, 2_500_000, 4_000_000, 120, 30, 20_000, 100_000, ID)

CGROUPFS = f"kubepods/burstable/pod{UID}/{ID}"
SLICE = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
SYSTEMD = f"kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{ID}.scope"


def v1(mount: Path, group: str, files: dict[str, str]) -> None:
    """One hierarchy per controller."""
    for name, text in files.items():
        write(mount / name.partition(".")[0] / group / name, text)


def v1_joined(mount: Path, group: str, files: dict[str, str]) -> None:
    """Both controllers in one hierarchy, without symbolic links."""
    for name, text in files.items():
        write(mount / "cpu,cpuacct" / group / name, text)


def v2(mount: Path, group: str, files: dict[str, str]) -> None:
    write(mount / "cgroup.controllers", "cpu io memory\n")
    for name, text in files.items():
        write(mount / group / name, text)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


TREES: dict[str, tuple[Callable[[Path, str, dict[str, str]], None], str, dict[str, str], str]] = {
    "v1, cgroupfs": (v1, CGROUPFS, V1, "/"),
    "v1, systemd": (v1, SYSTEMD, V1, "/"),
    "v1, both controllers in one": (v1_joined, CGROUPFS, V1, "/"),
    "v2, cgroupfs": (v2, CGROUPFS, V2, "/"),
    "v2, systemd": (v2, SYSTEMD, V2, "/"),
    "v2, cgroupfs, CRI-O": (v2, f"kubepods/burstable/pod{UID}/crio-{ID}", V2, "/"),
    "v2, systemd, CRI-O": (v2, SYSTEMD.replace("cri-containerd", "crio"), V2, "/"),
    "v2, systemd, docker": (v2, SYSTEMD.replace("cri-containerd", "docker"), V2, "/"),
    "v1, with a cgroupRoot": (v1, f"lab-1/{CGROUPFS}", V1, "/lab-1"),
    "v2, systemd, with a cgroupRoot": (
        v2,
        "lab_1.slice/lab_1-kubepods.slice/lab_1-kubepods-burstable.slice"
        f"/lab_1-{SLICE}/cri-containerd-{ID}.scope",
        V2,
        "/lab-1",
    ),
}


@pytest.mark.parametrize(("make", "group", "files", "root"), TREES.values(), ids=TREES)
def test_all_layouts_give_the_same_counters(tmp_path, make, group, files, root):
    make(tmp_path, group, files)
    tree = CgroupTree(tmp_path, root)

    assert tree.problem() is None
    assert tree.sample(PLACE, lambda: AT) == SAID
    assert tree.sample(PLACE, lambda: AT + 1) == replace(SAID, at=AT + 1), "found again"


@pytest.mark.parametrize(("qos", "folder"), {"Guaranteed": "", "BestEffort": "besteffort/"}.items())
def test_other_qos_classes_have_their_own_folder(tmp_path, qos, folder):
    v2(tmp_path, f"kubepods/{folder}pod{UID}/{ID}", V2)

    assert CgroupTree(tmp_path).sample(ContainerCgroup(UID, qos, ID), lambda: AT) == SAID


def test_a_container_without_limit_has_no_quota(tmp_path):
    v1(tmp_path / "1", CGROUPFS, V1 | {"cpu.cfs_quota_us": "-1\n"})
    v2(tmp_path / "2", CGROUPFS, {"cpu.stat": "usage_usec 5\n", "cpu.max": "max 100000\n"})

    first = CgroupTree(tmp_path / "1").sample(PLACE, lambda: AT)
    second = CgroupTree(tmp_path / "2").sample(PLACE, lambda: AT)

    assert first is not None
    assert first.quota is None
    assert second == CPUSample(AT, 5, container=ID)


def test_the_conmon_cgroup_is_not_the_container(tmp_path):
    v2(tmp_path, SYSTEMD.replace("cri-containerd", "crio-conmon"), {"cpu.stat": "usage_usec 1\n"})
    v2(tmp_path, SYSTEMD.replace("cri-containerd", "crio"), V2)

    assert CgroupTree(tmp_path).sample(PLACE, lambda: AT) == SAID


BROKEN = {
    "no cgroup": None,
    "no quota": {"cpu.max": None},
    "an empty file": {"cpu.stat": ""},
    "invalid text": {"cpu.max": "a lot\n"},
    "no usage": {"cpu.stat": "nr_periods 1\n"},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_unreadable_counters_are_none_and_not_zero(tmp_path, broken):
    if broken is None:
        v2(tmp_path, f"kubepods/burstable/pod{UID}", {"cpu.stat": "usage_usec 1\n"})
    else:
        v2(tmp_path, CGROUPFS, {name: text for name, text in (V2 | broken).items() if text is not None})

    assert CgroupTree(tmp_path).sample(PLACE, lambda: AT) is None


def test_a_vanished_cgroup_is_searched_again(tmp_path):
    v2(tmp_path, CGROUPFS, V2)
    tree = CgroupTree(tmp_path)
    assert tree.sample(PLACE, lambda: AT) == SAID

    for file in (tmp_path / CGROUPFS).iterdir():
        file.unlink()
    assert tree.sample(PLACE, lambda: AT) is None

    v2(tmp_path, CGROUPFS, V2)
    assert tree.sample(PLACE, lambda: AT) == SAID


def test_a_missing_container_id_matches_no_cgroup(tmp_path):
    v2(tmp_path, CGROUPFS, V2)

    assert CgroupTree(tmp_path).sample(ContainerCgroup(UID, "Burstable", ""), lambda: AT) is None


def test_usage_counts_everything_below_the_root(tmp_path):
    v1(tmp_path / "1", CGROUPFS, V1)
    write(tmp_path / "1/cpuacct/cpuacct.usage", "9000000\n")
    v2(tmp_path / "2", CGROUPFS, V2)
    write(tmp_path / "2/cpu.stat", "usage_usec 9000\n")

    assert CgroupTree(tmp_path / "1").usage() == CgroupTree(tmp_path / "2").usage() == 9000


def test_a_wrong_mount_or_root_is_explained(tmp_path):
    assert "has no cgroups with CPU counters" in (CgroupTree(tmp_path / "nowhere").problem() or "")
    v2(tmp_path, CGROUPFS, V2)
    assert "set --cgroup-root to the kubelet's cgroupRoot" in (CgroupTree(tmp_path, "/other").problem() or "")


def test_a_single_kubelet_root_is_detected(tmp_path):
    v1(tmp_path, f"lab-1/{CGROUPFS}", V1)
    assert CgroupTree(tmp_path).sample(PLACE, lambda: AT) == SAID

    v1(tmp_path, f"lab-2/{CGROUPFS}", V1)
    assert "cgroupRoot (one of /lab-1, /lab-2)" in (CgroupTree(tmp_path).problem() or "")

    v1(tmp_path, CGROUPFS, V1)
    assert CgroupTree(tmp_path).problem() is None, "the top comes first"


def test_the_cgroups_of_this_machine_can_be_read():
    if not cgroup.MOUNT.is_dir():
        pytest.skip("this machine mounts no control groups")
    tree = CgroupTree(root="/")
    before = tree.usage()
    if before is None:
        pytest.skip("the root of this machine's control groups counts no CPU time")

    assert sum(range(200_000)) > 0  # some CPU time

    after = tree.usage()
    assert after is not None
    assert after > before > 0


@given(st.text())
def test_any_file_content_can_be_parsed(text):
    assert cgroup_files.quota_v2(text) is None or isinstance(cgroup_files.quota_v2(text), CgroupQuota)
    assert isinstance(cgroup_files.throttling_v2(text), CgroupThrottling)
    cgroup_files.quota_v1(text, text)
    cgroup_files.throttling_v1(text)
    cgroup_files.usage_v1(text)
    cgroup_files.usage_v2(text)


@pytest.mark.parametrize(
    "text", ["9" * 5_000, "٣", "-5", "1.5"], ids=["endless", "Arabic", "negative", "half"]
)
def test_what_no_kernel_writes_is_unreadable(text):
    assert cgroup_files.usage_v1(text) is None
    assert cgroup_files.usage_v2(f"usage_usec {text}") is None
    assert cgroup_files.quota_v2(f"{text} 100000") is None
    assert cgroup_files.quota_v2(f"max {text}") is None
    assert cgroup_files.quota_v1("1000", text) is None


def test_the_runtime_prefix_of_a_container_id_is_removed():
    assert cgroup_paths.container_id(f"containerd://{ID}") == ID
    assert cgroup_paths.container_id("") == ""
