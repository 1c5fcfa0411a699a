"""Leases survive an API server that is slow, while their process sends many other requests.

The API server gets a small part of a CPU, as on an overloaded machine. The same load runs twice: first with
all requests in flight at once and renewals among them, then with the client as the processes use it. Losses
of the leadership are counted.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.config import Config
from croupier.kube.client.errors import KubeError
from croupier.kube.client.retry import RetryOptions
from croupier.kube.controller.leader_election import Elector, Leadership
from croupier.kube.controller.lease import LEASES, LeaseTimings
from tests.kube.builders import CONFIG_MAPS, config_map
from tests.polling import until

SECONDS = 60

NAMESPACE = "slow"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:manager"
"""An account under API Priority and Fairness; the administrator of the lab is exempt from it."""
PARALLEL = 400
"""Requests that the process wants to send at the same time."""
GROUPS = 3
LOSSES = 3
"""Losses of the first run, which ends with them; a busy machine needs fewer requests for them."""
RENEWALS = 20
"""Renewals of each group in the second run: about 40 s, several times the renew deadline."""
TIMEOUT = 300.0
CPU_PERIOD = 100_000
CPU_QUOTA = 5_000
CGROUP = Path("/sys/fs/cgroup/cpu/croupier-slow-api-server")
UNLIMITED = RetryOptions(in_flight=PARALLEL * 2)
OBJECTS = 100


@contextlib.contextmanager
def slowed(pid: int) -> Iterator[None]:
    """The process has a twentieth of a CPU."""
    CGROUP.mkdir(exist_ok=True)
    try:
        (CGROUP / "cpu.cfs_period_us").write_text(str(CPU_PERIOD))
        (CGROUP / "cpu.cfs_quota_us").write_text(str(CPU_QUOTA))
        (CGROUP / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        (CGROUP.parent / "cgroup.procs").write_text(str(pid))
        CGROUP.rmdir()


@dataclass
class Group:
    """Work under a Lease that counts how often it was lost."""

    elector: Elector
    started: int = 0
    lost: int = 0
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def work(self, _: Leadership) -> None:
        self.started += 1
        try:
            await self.stop.wait()
        except asyncio.CancelledError:
            self.lost += 1
            raise

    async def run(self) -> None:
        await self.elector.run(self.work, self.stop)


@dataclass
class Counted:
    """Requests of one process that the API server answered with success."""

    writes: int = 0
    renewals: int = 0

    def observe(self, verb: str, resource: str, code: int, _: float) -> None:
        if code == 200 and resource == LEASES.full_name and verb == "update":
            self.renewals += 1
        elif code == 200 and verb == "patch":
            self.writes += 1


@dataclass
class LoadedProcess:
    """Groups with their Leases, and other writes of the same client."""

    api: Client
    groups: list[Group]
    counted: Counted

    @property
    def lost(self) -> int:
        return sum(group.lost for group in self.groups)

    async def write(self, number: int) -> None:
        name = f"object-{number % OBJECTS}"
        while True:
            with contextlib.suppress(KubeError):
                patch = {"data": {"writes": str(self.counted.writes)}}
                await self.api.patch(CONFIG_MAPS, name, patch, namespace=NAMESPACE)

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncIterator[None]:
        leading = [asyncio.create_task(group.run()) for group in self.groups]
        await until(lambda: all(group.started for group in self.groups), "all groups to lead", TIMEOUT)
        writes = [asyncio.create_task(self.write(number)) for number in range(PARALLEL)]
        try:
            yield
        finally:
            for task in writes:
                task.cancel()
            await asyncio.wait(writes)
            for group in self.groups:
                group.stop.set()
            await asyncio.gather(*leading)


@contextlib.asynccontextmanager
async def process(account: Config, *, prioritized: bool) -> AsyncIterator[LoadedProcess]:
    counted = Counted()
    options = RetryOptions() if prioritized else UNLIMITED
    async with api_client.connect(account, retry=options, observe=counted.observe) as api:

        def elector(name: str) -> Elector:
            leases = api.prioritized(LeaseTimings().attempt_timeout) if prioritized else api
            return Elector(leases, name, NAMESPACE)

        groups = [Group(elector(f"group-{number}-{prioritized}".lower())) for number in range(GROUPS)]
        yield LoadedProcess(api, groups, counted)


@pytest.mark.skipif(not CGROUP.parent.is_dir(), reason="needs the cpu controller of cgroup v1, as root")
async def test_no_lease_is_lost_under_a_load_that_lost_them_without_priority(private_lab):
    lab = await private_lab()
    admin = config.load(lab.kubeconfig)
    lab.kubectl("create", "namespace", NAMESPACE)
    lab.kubectl("create", "clusterrolebinding", "manager", "--clusterrole=cluster-admin", f"--user={ACCOUNT}")
    groups = ("system:serviceaccounts", "system:authenticated")
    account = replace(admin, impersonate={"Impersonate-User": (ACCOUNT,), "Impersonate-Group": groups})
    async with api_client.connect(admin) as api:
        for number in range(OBJECTS):
            await api.create(CONFIG_MAPS, config_map(f"object-{number}"), namespace=NAMESPACE)

    with slowed(lab.process("kube-apiserver").pid):
        async with process(account, prioritized=False) as before, before.under_load():
            await until(lambda: before.lost >= LOSSES, "Leases to be lost", TIMEOUT)
        async with process(account, prioritized=True) as after, after.under_load():
            await until(lambda: after.counted.renewals >= GROUPS * RENEWALS, "renewals", TIMEOUT)

    assert after.lost == 0
    assert after.counted.writes > before.counted.writes, "the limit of requests in flight slows the load down"
    assert [group.started for group in after.groups] == [1] * GROUPS
