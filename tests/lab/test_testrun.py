"""Private labs serve one test after another, as if each had been started for it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from croupier.api import crds
from croupier_lab.binaries import BinarySources
from croupier_lab.controlplane import API_COMPONENTS, API_SERVER
from croupier_lab.lab import Lab
from croupier_lab.lifecycle import LabPlan
from croupier_lab.process import Program, alive, start
from croupier_lab.progress import LogProgress
from croupier_lab.testrun import TestRun

SECONDS = 20

PLAN = LabPlan(parts=API_COMPONENTS)
KINDS = "namespaces,nodes,configmaps,serviceaccounts,clusterroles,crds,gpupools,reservations"
POOL = (
    "apiVersion: gpu.deckhouse.io/v1alpha1\nkind: GPUPool\nmetadata: {name: team}\n"
    "spec: {allocation: {mode: MPS}}\n"
)
RESERVATION = (
    "apiVersion: mps.nvidia.com/v1\nkind: Reservation\nmetadata: {name: held, namespace: team}\n"
    "spec: {podKey: team/pod, nodeName: a, numCards: 1, percentPerCard: 50}\n"
)


@pytest_asyncio.fixture
async def run(pytestconfig: pytest.Config) -> AsyncIterator[TestRun]:
    programs: Path | None = pytestconfig.getoption("--lab-bin")
    made = TestRun(BinarySources(named=programs), LogProgress(lambda _: None, steps=False))
    yield made
    await made.stop(keep_logs=False)


def objects(lab: Lab) -> set[str]:
    return set(lab.kubectl("get", KINDS, "-A", "-o", "name").stdout.split())


def use(lab: Lab) -> None:
    """Write objects of many kinds, start another process, and leave files."""
    lab.kubectl("create", "namespace", "team")
    lab.kubectl("create", "serviceaccount", "someone", "-n", "team")
    lab.kubectl("create", "clusterrole", "reader", "--verb=get", "--resource=pods")
    lab.kubectl("create", "configmap", "settings", "-n", "default", "--from-literal=a=b")
    lab.kubectl("create", "-f", "-", stdin=f"{POOL}---\n{RESERVATION}")
    lab.adopt(start(Program("guest", ("sleep", "60")), lab.logs))
    (lab.folder / "someone.kubeconfig").touch()


async def test_a_private_lab_serves_one_test_after_another(run):
    lab = await run.private(PLAN, crds.definitions())
    before = objects(lab)
    assert "customresourcedefinition.apiextensions.k8s.io/gpupools.gpu.deckhouse.io" in before
    for _ in range(2):
        use(lab)
        guest = lab.process("guest")
        await run.end(lab, keep_logs=False)
        assert not alive(guest)

        assert await run.private(PLAN, crds.definitions()) is lab
        assert objects(lab) == before
        assert not (lab.folder / "someone.kubeconfig").exists()
        assert not (lab.logs / "guest.log").exists()

    lab.kubectl("create", "namespace", "team")
    lab.kill(API_SERVER)
    await lab.start(API_SERVER)
    await lab.ready()
    await run.end(lab, keep_logs=False)
    assert await run.private(PLAN, crds.definitions()) is lab, "also with a restarted API server"
    assert objects(lab) == before


async def test_other_labs_are_stopped(run):
    idle = await run.private(PLAN)
    await run.end(idle, keep_logs=False)
    assert all(map(alive, idle.record.processes))

    durable = await run.private(LabPlan(parts=API_COMPONENTS, durable=True))
    assert durable is not idle, "a test gets what it planned"
    await run.end(durable, keep_logs=False)
    assert not any(map(alive, idle.record.processes)), "only the last one is kept"

    broken = await run.private(LabPlan(parts=API_COMPONENTS, durable=True))
    assert broken is durable
    processes = broken.record.processes
    broken.kill(API_SERVER)
    await run.end(broken, keep_logs=False)
    assert not any(map(alive, processes)), "a broken one is not kept"
    assert not broken.folder.exists()
