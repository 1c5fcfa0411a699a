"""Reads CPU counters from the cgroups of a node: version 1 and 2, cgroupfs and systemd.

The kubelet's metrics are 10 to 15 seconds old and do not include throttling, so the files are read directly.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from croupier.core.market.estimation import CPUSample
from croupier.node.market import cgroup_files, cgroup_paths
from croupier.node.market.cgroup_files import CgroupQuota, CgroupThrottling
from croupier.node.market.cgroup_paths import KUBEPODS, CgroupDriver, ContainerCgroup

MOUNT: Final = Path("/sys/fs/cgroup")
MAX_CACHED: Final = 4096
"""Maximum number of cached containers: many times what a node runs."""
MAX_BYTES: Final = 4096
"""Maximum size of a file; the kernel's files have a few hundred bytes."""


@dataclass(frozen=True, slots=True)
class _CgroupFiles:
    """The files of one cgroup. Paths are plain strings because they are read very often."""

    usage: str
    stat: str
    quota: str
    period: str
    """Empty in version 2, where the quota file holds both."""


class CgroupTree:
    """The cgroups of one kubelet: `mount` is the cgroup mount point, `root` the kubelet's cgroupRoot.

    Without a `root` the top is used if it holds a kubelet's cgroups; otherwise the only child that does.
    """

    def __init__(self, mount: Path = MOUNT, root: str | None = None) -> None:
        self._mount = mount
        self._given = None if root is None else cgroup_paths.names(root)
        self._known: dict[str, _CgroupFiles] = {}

    @property
    def version(self) -> int:
        return 2 if (self._mount / "cgroup.controllers").exists() else 1

    def problem(self) -> str | None:
        """Why the counters cannot be read; None if they can."""
        if not self._cpu.is_dir():
            return f"{self._mount} has no cgroups with CPU counters: mount the cgroups of the node there"
        if self._driver() is not None:
            return None
        where = self._cpu / cgroup_paths.path(self._root, "cgroupfs")
        several = ", ".join(self._below()) if self._given is None else ""
        among = f" (one of {several})" if several else ""
        return (
            f"there is no {KUBEPODS} and no {KUBEPODS}.slice in {where}:"
            f" set --cgroup-root to the kubelet's cgroupRoot{among}"
        )

    def sample(self, place: ContainerCgroup, now: Callable[[], int]) -> CPUSample | None:
        """The counters of a container, read at `now()`; None if its cgroup does not exist."""
        group = self._known.get(place.container) or self._find(place)
        if group is None:
            return None
        at = now()
        counters = _read_counters(group)
        if counters is None:
            self._known.pop(place.container, None)
            return None
        usage, throttling, quota = counters
        return CPUSample(
            at=at,
            usage=usage,
            throttled=throttling.throttled,
            periods=throttling.periods,
            throttled_periods=throttling.throttled_periods,
            quota=quota.quota,
            period=quota.period,
            container=place.container,
        )

    def usage(self) -> int | None:
        """CPU time of everything below the kubelet's cgroupRoot, in microseconds."""
        group = self._group(cgroup_paths.path(self._root, self._driver() or "cgroupfs"))
        read = cgroup_files.usage_v1 if group.period else cgroup_files.usage_v2
        return read(_text(group.usage))

    def _find(self, place: ContainerCgroup) -> _CgroupFiles | None:
        driver = self._driver()
        if driver is None:
            return None
        pod = cgroup_paths.of_pod(place, self._root, driver)
        try:
            inside = [folder.name for folder in (self._cpu / pod).iterdir() if folder.is_dir()]
        except OSError:
            return None
        name = cgroup_paths.pick(inside, place.container)
        if name is None:
            return None
        if len(self._known) >= MAX_CACHED:
            self._known.clear()
        self._known[place.container] = self._group(f"{pod}/{name}")
        return self._known[place.container]

    def _group(self, where: str) -> _CgroupFiles:
        cpu = self._cpu / where
        if self.version == 2:
            return _CgroupFiles(str(cpu / "cpu.stat"), str(cpu / "cpu.stat"), str(cpu / "cpu.max"), "")
        usage = self._hierarchy("cpuacct") / where / "cpuacct.usage"
        quota, period = str(cpu / "cpu.cfs_quota_us"), str(cpu / "cpu.cfs_period_us")
        return _CgroupFiles(str(usage), str(cpu / "cpu.stat"), quota, period)

    def _driver(self) -> CgroupDriver | None:
        drivers: tuple[CgroupDriver, ...] = ("cgroupfs", "systemd")
        for driver in drivers:
            if (self._cpu / cgroup_paths.path((*self._root, KUBEPODS), driver)).is_dir():
                return driver
        return None

    @property
    def _root(self) -> tuple[str, ...]:
        if self._given is None:
            below = self._below()
            if any((self._cpu / name).is_dir() for name in (KUBEPODS, f"{KUBEPODS}.slice")):
                self._given = ()
            elif len(below) == 1:
                self._given = cgroup_paths.names(below[0])
        return self._given or ()

    def _below(self) -> list[str]:
        """Children of the top in which a kubelet with the cgroupfs driver has its pods."""
        return sorted(f"/{folder.parent.name}" for folder in self._cpu.glob(f"*/{KUBEPODS}"))

    @property
    def _cpu(self) -> Path:
        return self._mount if self.version == 2 else self._hierarchy("cpu")

    def _hierarchy(self, controller: str) -> Path:
        """Version 1 has one hierarchy per controller, or one for both."""
        alone = self._mount / controller
        return alone if alone.is_dir() else self._mount / "cpu,cpuacct"


def _read_counters(group: _CgroupFiles) -> tuple[int, CgroupThrottling, CgroupQuota] | None:
    stat = _text(group.stat)
    throttling: CgroupThrottling | None
    if group.period:
        usage, throttling = cgroup_files.usage_v1(_text(group.usage)), cgroup_files.throttling_v1(stat)
        quota = cgroup_files.quota_v1(_text(group.quota), _text(group.period))
    else:
        usage, throttling = cgroup_files.usage_v2(stat), cgroup_files.throttling_v2(stat)
        quota = cgroup_files.quota_v2(_text(group.quota))
    if usage is None or throttling is None or quota is None:
        return None
    return usage, throttling, quota


def _text(path: str) -> str | None:
    """Uses `os.open`, because the layers of `open` cost more than the read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(file, MAX_BYTES).decode("ascii", "replace")
    except OSError:
        return None
    finally:
        os.close(file)
