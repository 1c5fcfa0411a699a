"""Reads CPU counters from the control groups of a node: version 1 and 2, cgroupfs and systemd.

The kubelet's own endpoints are 10 to 15 seconds old and say nothing about throttling, so the files are read.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from croupier.core.market.sensing import Sample
from croupier.node import cgroup_files, cgroup_paths
from croupier.node.cgroup_files import Quota, Throttling
from croupier.node.cgroup_paths import KUBEPODS, Driver, Place

MOUNT: Final = Path("/sys/fs/cgroup")
MOST_KNOWN: Final = 4096
"""Containers whose folder is remembered: many times what a node runs."""


class Tree:
    """The control groups of one kubelet: `mount` is where they are, `root` what it calls its cgroupRoot.

    Without a `root` it is the top if a kubelet uses that; else the one group right below where one does.
    """

    def __init__(self, mount: Path = MOUNT, root: str | None = None) -> None:
        self._mount = mount
        self._given = None if root is None else cgroup_paths.names(root)
        self._known: dict[str, str] = {}

    @property
    def version(self) -> int:
        return 2 if (self._mount / "cgroup.controllers").exists() else 1

    def trouble(self) -> str | None:
        """Why nothing can be read here, in a sentence; None if it can."""
        if not self._cpu.is_dir():
            return f"{self._mount} holds no control groups with CPU counters: mount the node's there"
        if self._driver() is not None:
            return None
        where = self._cpu / cgroup_paths.path(self._root, "cgroupfs")
        several = ", ".join(self._below()) if self._given is None else ""
        among = f" (one of {several})" if several else ""
        return (
            f"there is no {KUBEPODS} and no {KUBEPODS}.slice in {where}:"
            f" give the kubelet's cgroupRoot as --cgroup-root{among}"
        )

    def sample(self, place: Place, now: Callable[[], int]) -> Sample | None:
        """The counters of a container, read at `now()`; None if it has no group (any more)."""
        where = self._known.get(place.container) or self._find(place)
        if where is None:
            return None
        at = now()
        told = self._told(where)
        if told is None:
            self._known.pop(place.container, None)
            return None
        usage, throttling, quota = told
        return Sample(
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
        """CPU time of everything below the kubelet's root, in microseconds."""
        where = cgroup_paths.path(self._root, self._driver() or "cgroupfs")
        return self._usage(where)

    def _told(self, where: str) -> tuple[int, Throttling, Quota] | None:
        usage = self._usage(where)
        if self.version == 2:
            throttling: Throttling | None = cgroup_files.throttling_v2(_text(self._cpu / where / "cpu.stat"))
            quota = cgroup_files.quota_v2(_text(self._cpu / where / "cpu.max"))
        else:
            throttling = cgroup_files.throttling_v1(_text(self._cpu / where / "cpu.stat"))
            quota = cgroup_files.quota_v1(
                _text(self._cpu / where / "cpu.cfs_quota_us"), _text(self._cpu / where / "cpu.cfs_period_us")
            )
        if usage is None or throttling is None or quota is None:
            return None
        return usage, throttling, quota

    def _usage(self, where: str) -> int | None:
        if self.version == 2:
            return cgroup_files.usage_v2(_text(self._cpu / where / "cpu.stat"))
        return cgroup_files.usage_v1(_text(self._hierarchy("cpuacct") / where / "cpuacct.usage"))

    def _find(self, place: Place) -> str | None:
        driver = self._driver()
        if driver is None:
            return None
        pod = cgroup_paths.of_pod(place, self._root, driver)
        try:
            inside = [one.name for one in (self._cpu / pod).iterdir() if one.is_dir()]
        except OSError:
            return None
        name = cgroup_paths.pick(inside, place.container)
        if name is None:
            return None
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[place.container] = f"{pod}/{name}"
        return self._known[place.container]

    def _driver(self) -> Driver | None:
        drivers: tuple[Driver, ...] = ("cgroupfs", "systemd")
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
        """The groups right below the top in which a kubelet with the cgroupfs driver keeps its pods."""
        return sorted(f"/{one.parent.name}" for one in self._cpu.glob(f"*/{KUBEPODS}"))

    @property
    def _cpu(self) -> Path:
        return self._mount if self.version == 2 else self._hierarchy("cpu")

    def _hierarchy(self, controller: str) -> Path:
        """Version 1 has one for each controller, or one for both."""
        alone = self._mount / controller
        return alone if alone.is_dir() else self._mount / "cpu,cpuacct"


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
