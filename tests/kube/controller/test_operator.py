"""The whole runtime as an operator on a real API server: it converges, fails over, and survives outages."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import KubeError, NotFound
from croupier.kube.client.watch_protocol import ObjectEvent
from croupier.kube.controller.lease import LEASES
from tests.kube import replicas
from tests.kube.builders import CONFIG_MAPS, ConfigMap
from tests.kube.replicas import Replica
from tests.polling import until, until_async

SECONDS = 20

Start = Callable[[str], Replica]


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig)) as connected:
        yield connected


@pytest.fixture
def start(cluster: Any, namespace: str, tmp_path: Path) -> Iterator[Start]:
    with replicas.replica_factory(cluster.kubeconfig, namespace, tmp_path) as start:
        yield start


async def give(api: Client, namespace: str, *names: str, role: str = "source", value: str = "1") -> None:
    for name in names:
        body = {"metadata": {"name": name, "labels": {"role": role}}, "data": {"value": value}}
        await api.create(CONFIG_MAPS, body, namespace=namespace)


async def copied(api: Client, namespace: str, *names: str, value: str = "1") -> None:
    async def look() -> bool:
        with contextlib.suppress(NotFound):
            for name in names:
                copy = await api.get(CONFIG_MAPS, f"{name}-copy", namespace=namespace)
                if copy.data != {"value": value}:
                    return False
            return True
        return False

    await until_async(look, f"copies of {names}")


async def test_sources_are_copied_changed_and_removed(api, namespace, start, cluster):
    replica = start("a")
    await replica.ready()
    await give(api, namespace, "one", "two")
    await copied(api, namespace, "one", "two")

    await api.patch(CONFIG_MAPS, "one", {"data": {"value": "2"}}, namespace=namespace)
    await copied(api, namespace, "one", value="2")
    await api.delete(CONFIG_MAPS, "two", namespace=namespace)

    async def gone() -> bool:
        listed = await api.list(CONFIG_MAPS, Selection(namespace, labels="role=copy"))
        return [copy.metadata.name for copy in listed.items] == ["one-copy"]

    await until_async(gone)

    async def recorded() -> bool:
        described = cluster.kubectl("describe", "configmap", "one", "-n", namespace).stdout
        return "copied to one-copy" in described

    await until_async(recorded, "the Event")


async def test_own_writes_are_not_repeated(api, namespace, start):
    """Each reconcile that writes requeues its key immediately, before the cache shows the write."""
    names = [f"source-{n}" for n in range(40)]
    await give(api, namespace, *names)
    replica = start("a")
    await copied(api, namespace, *names)
    await give(api, namespace, "late")
    await copied(api, namespace, "late")

    of_copies = {"resource": "configmaps"}
    assert await replica.metric("croupier_client_requests_total", verb="create", **of_copies) == 41
    assert await replica.metric("croupier_client_requests_total", verb="patch", **of_copies) == 0
    assert await replica.metric("croupier_expectations_missed_total") == 0
    assert await replica.metric("croupier_reconciles_total", outcome="error") == 0


async def test_sigterm_releases_the_lease_and_exits_with_0(api, namespace, start):
    first = start("a")
    await until_async(first.leads, "a to lead")
    second = start("b")
    await second.ready()
    assert not await second.leads()

    first.kill(signal.SIGTERM)
    assert await first.ended() == 0
    assert first.said("released Lease")
    held = await api.get(LEASES, "copier", namespace=namespace)
    assert held["spec"]["holderIdentity"] in ("", "b")
    await until_async(second.leads, "b to lead")
    await give(api, namespace, "after")
    await copied(api, namespace, "after")


async def test_when_the_leader_is_killed_the_other_takes_over(api, namespace, start):
    first = start("a")
    await until_async(first.leads, "a to lead")
    second = start("b")
    await give(api, namespace, "before")
    await copied(api, namespace, "before")

    first.kill()
    assert await first.ended() == -signal.SIGKILL
    await give(api, namespace, "after")
    await copied(api, namespace, "before", "after")
    assert await second.leads()
    assert (await api.get(LEASES, "copier", namespace=namespace))["spec"]["leaseTransitions"] == 1


class Write(NamedTuple):
    by: str
    begun: float
    """When the writer started the write."""


class History:
    """The increments in the order in which the API server stored them."""

    def __init__(self) -> None:
        self.writes: list[Write] = []

    async def follow(self, api: Client, namespace: str, version: str) -> None:
        selection = Selection(namespace, labels="role=beat")
        async with contextlib.aclosing(
            api.watch(CONFIG_MAPS, selection, resource_version=version)
        ) as batches:
            async for batch in batches:
                for event in batch:
                    if isinstance(event, ObjectEvent) and event.type == "MODIFIED":
                        self.note(event.object)

    def note(self, beat: ConfigMap) -> None:
        self.writes.append(Write(beat.data.get("by", ""), float(beat.data.get("begun", "0"))))

    def of(self, writer: str, since: int = 0) -> list[Write]:
        return [write for write in self.writes[since:] if write.by == writer]


async def test_a_frozen_leader_does_not_write_after_it_resumes(api, namespace, start):
    await give(api, namespace, *(f"beat-{n}" for n in range(6)), role="beat")
    listed = await api.list(CONFIG_MAPS, Selection(namespace))
    history = History()
    following = asyncio.create_task(history.follow(api, namespace, listed.resource_version))
    frozen = start("a")
    await until(lambda: len(history.of("a")) > 20, "a to beat")
    other = start("b")
    await other.ready()

    await freeze_and_thaw(frozen, other, history)
    await freeze_and_thaw(other, frozen, history)
    following.cancel()


async def freeze_and_thaw(frozen: Replica, other: Replica, history: History) -> None:
    frozen.freeze()
    stands_still = time.monotonic()
    await until(lambda: history.writes[-1].by == other.name, f"{other.name} to take over")
    taken_over = len(history.writes) - 1
    await until(lambda: len(history.of(other.name, taken_over)) > 20)
    frozen.kill(signal.SIGCONT)
    thawed = len(history.writes)
    await until(lambda: frozen.said("stopped leading"), f"{frozen.name} to notice")
    await until(lambda: len(history.of(other.name, thawed)) > 100, f"{other.name} to go on")

    late = history.of(frozen.name, taken_over)
    assert [write for write in late if write.begun > stands_still] == [], "it set out to write after the thaw"
    assert len(late) <= 4, "more than one request of each worker was under way"


async def test_the_operator_survives_an_api_server_outage(private_lab, tmp_path):
    lab = await private_lab()
    lab.kubectl("create", "namespace", "story")
    with replicas.replica_factory(lab.kubeconfig, "story", tmp_path) as start:
        async with api_client.connect(config.load(lab.kubeconfig)) as api:
            replica = start("a")
            await give(api, "story", "before")
            await copied(api, "story", "before")

            lab.kill("kube-apiserver")
            await until_async(lambda: _refused(api), "the API server to be gone")
            await until(lambda: replica.said("stopped leading"), "the lease to be given up")
            assert replica.child.poll() is None
            await lab.start("kube-apiserver")
            await lab.ready()

            await give(api, "story", "after")
            await copied(api, "story", "before", "after")
            replica.kill(signal.SIGTERM)
            assert await replica.ended() == 0


async def _refused(api: Client) -> bool:
    try:
        async with asyncio.timeout(1):
            await api.list(CONFIG_MAPS, Selection("story"))
    except (KubeError, TimeoutError):
        return True
    return False
