"""A handle on a running lab: inspect, kill, freeze and restart its components.

`lifecycle` starts and stops labs. A `Lab` can be created from the record by any process.
"""

import asyncio
import base64
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from croupier_lab import controlplane, errors, etcd_keys, probe, process, record
from croupier_lab.cluster import Cluster, Completed
from croupier_lab.controlplane import ETCD, LabLayout
from croupier_lab.errors import LabError
from croupier_lab.etcd_keys import KeyRange, Keys
from croupier_lab.probe import Endpoint
from croupier_lab.process import LabProcess
from croupier_lab.record import LabRecord

READY_TIMEOUT = 60.0
POLL = 0.05
ADDRESS_IN_USE = "address already in use"
ETCD_OPERATIONS = 128
"""The operations that etcd accepts in one transaction by default."""


class PortClashError(LabError):
    """Another program took a port after it was chosen and before the component opened it."""


class Lab:
    def __init__(self, remembered: LabRecord) -> None:
        self.record = remembered

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def folder(self) -> Path:
        return Path(self.record.folder)

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def site(self) -> LabLayout:
        return LabLayout(
            folder=self.folder,
            ports=self.record.ports,
            binaries=self.record.binaries,
            stages=self.record.stages,
            durable=self.record.durable,
            extra=self.record.extra,
        )

    @property
    def kubeconfig(self) -> Path:
        return self.site.kubeconfig("admin")

    @property
    def server(self) -> str:
        return self.site.server

    @property
    def cluster(self) -> Cluster:
        return Cluster(
            self.kubeconfig, Path(self.record.binaries["kubectl"]), memory=self.folder / "kubectl-cache"
        )

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> Completed:
        return self.cluster.kubectl(*args, stdin=stdin, check=check)

    def process(self, part: str) -> LabProcess:
        for running in self.record.processes:
            if running.name == part:
                return running
        parts = ", ".join(running.name for running in self.record.processes) or "nothing"
        raise LabError(f"lab {self.name} has no {part}; it runs {parts}.")

    def kill(self, part: str) -> None:
        """Kill a component with SIGKILL. `start` restarts it with its data and its port."""
        process.kill(self.process(part))

    def freeze(self, part: str) -> None:
        process.freeze(self.process(part))

    def thaw(self, part: str) -> None:
        process.thaw(self.process(part))

    async def start(self, part: str) -> LabProcess:
        """Start or restart a component without waiting until it is ready (see `ready`)."""
        for old in self.record.processes:
            if old.name == part:
                await process.stop(old)
        started = process.start(controlplane.program(part, self.site), self.logs)
        self.adopt(started)
        return started

    def adopt(self, *started: LabProcess) -> None:
        """Add processes to the record, replacing those with the same names."""
        names = {running.name for running in started}
        kept = tuple(running for running in self.record.processes if running.name not in names)
        self.remember(processes=(*kept, *started))

    def remember(self, **changes: object) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)
        record.save(self.record)

    async def ready(self, parts: Sequence[str] = (), *, within: float = READY_TIMEOUT) -> None:
        """Wait until these components, by default all that were started, are ready."""
        known = {running.name for running in self.record.processes}
        named = parts or [part for part in controlplane.COMPONENTS if part in known]
        deadline = time.monotonic() + within
        for part in named:
            await self.answers(part, controlplane.endpoint(part, self.site), deadline, within=within)

    async def answers(self, part: str, endpoint: Endpoint, deadline: float, *, within: float) -> None:
        """Wait until the process is ready at `endpoint`."""
        answer = "nothing"
        while time.monotonic() < deadline:
            running = self.process(part)
            if not process.alive(running):
                raise _exit_error(running)
            try:
                status, answer = await asyncio.to_thread(probe.get, endpoint)
                if status == 200:
                    return
            except OSError as refusal:
                answer = str(refusal)
            await asyncio.sleep(POLL)
        sentence = f"{part} was not ready within {within:g} seconds; its last answer was: {answer[-300:]}."
        raise errors.with_log(sentence, Path(self.process(part).log))

    def etcd_compact(self) -> int:
        """Compact etcd to the current revision and return it; older watches get 410 Gone."""
        revision = int(self._etcd("/v3/kv/range", {"key": _base64("\0")}).header["revision"])
        self._etcd("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    def etcd_keys(self) -> Keys:
        everything = {"key": _base64(etcd_keys.ROOT), "range_end": _base64(etcd_keys.END), "keys_only": True}
        listed = self._etcd("/v3/kv/range", everything).kvs
        return {base64.b64decode(item["key"]).decode(): int(item["mod_revision"]) for item in listed}

    def etcd_delete(self, ranges: Sequence[KeyRange]) -> None:
        """Delete all keys of these ranges, at once where etcd allows it."""
        deletions = [
            {"request_delete_range": {"key": _base64(first), "range_end": _base64(end)}}
            for first, end in ranges
        ]
        for start in range(0, len(deletions), ETCD_OPERATIONS):
            self._etcd("/v3/kv/txn", {"success": deletions[start : start + ETCD_OPERATIONS]})

    def _etcd(self, path: str, question: Mapping[str, object]) -> "_EtcdAnswer":
        endpoint = controlplane.etcd_endpoint(self.site, path)
        status, answer = probe.post(endpoint, msgspec.json.encode(question).decode())
        if status != 200:
            raise errors.with_log(
                f"etcd refused {path} with {status}: {answer.strip()}.", Path(self.process(ETCD).log)
            )
        return msgspec.json.decode(answer, type=_EtcdAnswer)


class _EtcdAnswer(msgspec.Struct):
    """Numbers are text."""

    header: dict[str, str] = {}
    kvs: list[dict[str, str]] = []


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _exit_error(part: LabProcess) -> LabError:
    log = Path(part.log)
    failure = errors.with_log(f"{part.name} exited during start-up.", log)
    if any(ADDRESS_IN_USE in line for line in errors.tail(log, 40)):
        return PortClashError(str(failure))
    return failure
