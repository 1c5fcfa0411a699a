"""The labs of one test run: at most one shared lab, and any number of private ones.

A private lab that runs only an API server is emptied after its test, and serves the next test that plans the
same. The labs are in temporary folders. The state folder has a link to each, so that the next run can clean
up after a run that was killed.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from croupier_lab import api_proxy, lifecycle, lock, process, provisioning, record, shared_cluster, user_dirs
from croupier_lab.binaries import BinarySources
from croupier_lab.cluster import Cluster
from croupier_lab.controlplane import API_COMPONENTS
from croupier_lab.lab import Lab
from croupier_lab.lifecycle import LabPlan
from croupier_lab.pristine import Pristine
from croupier_lab.progress import ProgressReporter
from croupier_lab.shared_cluster import Manifest

T = TypeVar("T")


@dataclass(frozen=True)
class _Reusable:
    """A private lab that may serve another test."""

    lab: Lab
    plan: LabPlan
    crds: Mapping[str, Manifest]
    pristine: Pristine


class TestRun:
    __test__ = False  # pytest would collect a class with this name

    def __init__(self, sources: BinarySources, show: ProgressReporter) -> None:
        self._sources = sources
        self._show = show
        self._folder: Path | None = None
        self._labs: list[Lab] = []
        self._in_use: dict[Lab, _Reusable] = {}
        self._idle: _Reusable | None = None
        self._shared: Lab | None = None
        self._foreign: Cluster | None = None
        self._count = 0
        self._kept: list[Path] = []

    def shared(self) -> Lab:
        if self._shared is None:
            self._shared = run(self._raise(LabPlan(name="shared")))
        return self._shared

    @property
    def raised(self) -> Lab | None:
        """The shared lab, if it was started."""
        return self._shared

    def foreign(self, kubeconfig: Path) -> Cluster:
        stock = run(provisioning.ensure(["kubectl"], self._sources, self._show))
        self._foreign = Cluster(kubeconfig.absolute(), stock.binaries["kubectl"])
        return self._foreign

    def join_real_node(self, settings: Mapping[str, Any] | None = None) -> str:
        return run(lifecycle.join_real_node(self.shared(), self._sources, self._show, settings))

    def part_with_real_node(self) -> None:
        run(lifecycle.remove_real_node(self.shared()))

    async def private(self, plan: LabPlan, crds: Mapping[str, Manifest] | None = None) -> Lab:
        """A lab without any objects but these CRDs."""
        wanted = crds or {}
        if (idle := self._idle) is not None and (idle.plan, idle.crds) == (plan, wanted):
            self._idle = None
            self._in_use[idle.lab] = idle
            return idle.lab
        self._count += 1
        lab = await self._raise(replace(plan, name=f"private-{self._count}"))
        if wanted:
            await asyncio.to_thread(shared_cluster.install, lab.cluster, wanted)
        if lab.record.parts == API_COMPONENTS:
            self._in_use[lab] = _Reusable(lab, plan, wanted, Pristine.of(lab))
        return lab

    async def end(self, lab: Lab, *, keep_logs: bool) -> None:
        """Stop the lab, or keep it running for the next test in place of another idle one."""
        reusable = self._in_use.pop(lab, None)
        if reusable is None or keep_logs or not await reusable.pristine.restore(lab):
            await self._stop(lab, keep_logs=keep_logs)
            return
        if self._idle is not None:
            await self._stop(self._idle.lab, keep_logs=False)
        self._idle = reusable

    async def _stop(self, lab: Lab, *, keep_logs: bool) -> None:
        api_proxy.close(lab.cluster)
        await lifecycle.stop(lab)
        self._labs.remove(lab)
        self._link(lab.folder).unlink(missing_ok=True)
        if keep_logs:
            self._kept.append(lab.logs)
        else:
            shutil.rmtree(lab.folder, ignore_errors=True)

    def logs(self) -> list[Path]:
        return [*self._kept, *(lab.logs for lab in self._labs)]

    def close(self, *, keep_logs: bool) -> None:
        """`stop` outside of an event loop."""
        run(self.stop(keep_logs=keep_logs))

    async def stop(self, *, keep_logs: bool) -> None:
        """Stop all labs, the shared one last."""
        if self._foreign is not None:
            api_proxy.close(self._foreign)
        for lab in reversed(self._labs.copy()):
            await self._stop(lab, keep_logs=keep_logs)
        self._shared = self._idle = None
        if self._folder is not None and not self._kept:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _raise(self, plan: LabPlan) -> Lab:
        if self._folder is None:
            await sweep(self._sources, self._show)
            self._folder = Path(tempfile.mkdtemp(prefix="croupier-test-"))
        folder = self._folder / plan.name
        link = self._link(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
        try:
            lab, _ = await lifecycle.up(replace(plan, folder=folder, sources=self._sources), self._show)
        except BaseException:
            link.unlink(missing_ok=True)
            self._kept.append(folder / "logs")
            raise
        self._labs.append(lab)
        return lab

    def _link(self, folder: Path) -> Path:
        return user_dirs.runs(self._sources.env) / f"{folder.parent.name}-{folder.name}"


async def sweep(sources: BinarySources, show: ProgressReporter) -> None:
    """Stop the labs of earlier runs whose process has died. Guarded by a lock."""
    links = user_dirs.runs(sources.env)
    async with lock.held(user_dirs.home(sources.env) / "runs.lock", on_wait=lambda: None):
        await _sweep(_inside(links), show)


def _inside(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


async def _sweep(links: Sequence[Path], show: ProgressReporter) -> None:
    for link in links:
        left = record.load(link)
        if left is None and link.readlink().parent.exists():
            continue  # another run is starting it or building its binaries
        if left is not None:
            if left.owner is not None and process.alive(left.owner):
                continue
            show.say(f"Cleaning up after a test run that was killed: {left.folder}")
            await lifecycle.stop(Lab(left))
            shutil.rmtree(Path(left.folder).parent, ignore_errors=True)
        link.unlink(missing_ok=True)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a separate event loop, for synchronous fixtures."""
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)
