"""A lab starts with real TLS and RBAC, runs next to other labs, and leaves nothing running."""

import asyncio
import contextlib
import json
import os
import ssl
from dataclasses import replace

import pytest

from croupier_lab import controlplane, lifecycle, ports, probe, process, record
from croupier_lab.binaries import BinarySources
from croupier_lab.controlplane import API_COMPONENTS, API_SERVER, ETCD
from croupier_lab.errors import LabError
from croupier_lab.lab import Lab
from croupier_lab.lifecycle import LabPlan
from croupier_lab.probe import Endpoint
from croupier_lab.progress import LogProgress, NoProgress
from croupier_lab.record import LabState

SECONDS = 60


@pytest.fixture
def plan(tmp_path, pytestconfig):
    """The smallest lab, in its own folder."""
    env = {**os.environ, "CROUPIER_HOME": str(tmp_path)}
    sources = BinarySources(named=pytestconfig.getoption("--lab-bin"), env=env)
    return LabPlan(name="tested", parts=API_COMPONENTS, sources=sources)


@contextlib.asynccontextmanager
async def raised(plan: LabPlan):
    lab, _ = await lifecycle.up(plan, NoProgress())
    try:
        yield lab
    finally:
        await lifecycle.down(plan.place, NoProgress())


def running(lab: Lab) -> list[str]:
    return [part.name for part in lab.record.processes if process.alive(part)]


async def test_up_is_idempotent_and_down_leaves_only_the_logs(plan):
    lab, new = await lifecycle.up(plan, NoProgress())
    assert new
    assert running(lab) == [ETCD, API_SERVER]
    assert not ports.is_free(lab.record.ports[API_SERVER])

    (again, new), (third, newer) = await asyncio.gather(
        lifecycle.up(plan, NoProgress()), lifecycle.up(plan, NoProgress())
    )
    assert (new, newer) == (False, False)
    assert again.record == third.record == lab.record

    assert await lifecycle.down(plan.place, NoProgress())

    assert running(lab) == []
    assert all(ports.is_free(port) for port in lab.record.ports.values())
    assert [path.name for path in lab.folder.iterdir()] == ["logs"]
    assert (lab.logs / "kube-apiserver.log").stat().st_size > 0
    assert not await lifecycle.down(plan.place, NoProgress())


async def test_two_labs_are_independent(plan):
    async with raised(plan) as one, raised(replace(plan, name="other")) as two:
        one.kubectl("create", "namespace", "only-in-one")

        assert "only-in-one" in one.kubectl("get", "namespaces").stdout
        assert "only-in-one" not in two.kubectl("get", "namespaces").stdout
        assert {one.name, two.name} == {lab.name for lab in lifecycle.existing(plan.sources.env)}
        stranger = replace(two.cluster, kubeconfig=one.kubeconfig)
        refused = stranger.kubectl("get", "namespaces", f"--server={two.server}", check=False)
        assert refused.returncode != 0
        assert "certificate" in refused.stderr


async def test_a_broken_lab_is_cleaned_up_and_restarted(plan):
    heard: list[str] = []
    async with raised(plan) as lab:
        lab.kubectl("create", "namespace", "before-the-crash")
        lab.kill(ETCD)
        assert await process.gone(lab.process(ETCD), within=5)
        assert record.state(lab.record) is LabState.BROKEN

        again, new = await lifecycle.up(plan, LogProgress(heard.append))

        assert new
        assert "Lab tested was not stopped properly: cleaning up" in heard
        assert running(lab) == []
        assert running(again) == [ETCD, API_SERVER]
        assert "before-the-crash" not in again.kubectl("get", "namespaces").stdout


async def test_a_component_that_does_not_start_is_reported_with_its_log(plan):
    broken = replace(plan, extra={API_SERVER: ("--no-such-flag",)})

    with pytest.raises(LabError) as failure:
        await lifecycle.up(broken, NoProgress())

    log = plan.place / "logs" / "kube-apiserver.log"
    assert f"kube-apiserver exited during start-up. Its log is {log} and ends:" in str(failure.value)
    assert "no-such-flag" in str(failure.value)
    assert log.exists()
    assert record.load(plan.place) is None


async def test_a_start_up_timeout_is_reported_and_nothing_is_left(plan):
    with pytest.raises(LabError, match=r"was not ready within 0.01 seconds"):
        await lifecycle.up(replace(plan, timeout=0.01), NoProgress())

    assert record.load(plan.place) is None


async def test_an_interrupted_start_leaves_nothing_running(plan):
    task = asyncio.create_task(lifecycle.up(plan, NoProgress()))
    async with asyncio.timeout(30):
        while (stored := record.load(plan.place)) is None or len(stored.processes) < 2:  # noqa: ASYNC110 (a file)
            await asyncio.sleep(0.02)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [part.name for part in stored.processes if process.alive(part)] == []
    assert record.load(plan.place) is None


async def test_a_port_taken_at_the_last_moment_is_replaced(plan, monkeypatch):
    async with raised(replace(plan, name="neighbour")) as neighbour:
        honest, taken = ports.free, [True]

        def careless(count, *, chance):
            """Simulate that another lab took the port after it was chosen."""
            chosen = honest(count, chance=chance)
            if taken.pop() if taken else False:
                return (neighbour.record.ports[ETCD], *chosen[1:])
            return chosen

        monkeypatch.setattr(ports, "free", careless)
        heard: list[str] = []
        lab, _ = await lifecycle.up(plan, LogProgress(heard.append))
        await lifecycle.stop(lab)

        assert "Another program took one of the chosen ports: trying other ports" in heard
        assert running(neighbour) == [ETCD, API_SERVER]


async def test_components_can_be_killed_frozen_and_restarted_with_their_data(plan):
    async with raised(replace(plan, durable=True)) as lab:
        lab.kubectl("create", "namespace", "kept")
        for part in (API_SERVER, ETCD):
            lab.kill(part)
            await lab.start(part)
            await lab.ready()
            assert "kept" in lab.kubectl("get", "namespaces").stdout

        lab.freeze(API_SERVER)
        with pytest.raises(LabError, match="was not ready"):
            await lab.ready([API_SERVER], within=0.5)
        lab.thaw(API_SERVER)
        await lab.ready()
        with pytest.raises(LabError, match=r"lab tested has no kubelet; it runs .*etcd"):
            lab.kill("kubelet")


async def test_compaction_removes_old_revisions(private_lab):
    lab = await private_lab()
    namespaces = json.loads(lab.kubectl("get", "--raw", "/api/v1/namespaces").stdout)
    before = namespaces["metadata"]["resourceVersion"]
    lab.kubectl("create", "namespace", "later")
    lab.etcd_compact()

    # The API server has no watch cache for Events.
    old = f"/api/v1/events?resourceVersion={before}&resourceVersionMatch=Exact"
    answer = lab.kubectl("get", "--raw", old, check=False)

    assert answer.returncode != 0
    assert "Expired" in answer.stderr


def test_anonymous_and_foreign_clients_are_rejected(lab):
    site = lab.site
    without_name = Endpoint(f"{lab.server}/api/v1/namespaces", site.authority)
    status, answer = probe.get(without_name)
    assert status == 403
    assert "system:anonymous" in answer

    with_etcds_name = Endpoint(without_name.url, site.authority, site.pair("etcd-client"))
    with contextlib.suppress(OSError):
        assert probe.get(with_etcds_name)[0] in (401, 403)

    with pytest.raises(ssl.SSLError):  # etcd does not trust the cluster CA
        probe.get(replace(controlplane.etcd_endpoint(site, "/health"), pair=site.pair("admin")))


def test_rbac_is_enforced(lab: Lab, namespace: str):
    token = lab.kubectl("create", "token", "default", "-n", namespace).stdout.strip()

    def ask() -> str:
        trust = f"--certificate-authority={lab.site.authority}"
        account = ("--kubeconfig=/dev/null", "--server", lab.server, trust, "--token", token)
        return lab.kubectl(*account, "get", "pods", "-n", namespace, check=False).stderr

    assert f'User "system:serviceaccount:{namespace}:default" cannot list resource "pods"' in ask()
    lab.kubectl(
        *("create", "rolebinding", "reader", "--clusterrole=view", "-n", namespace),
        f"--serviceaccount={namespace}:default",
    )
    assert "No resources found" in ask()


def test_node_restriction_is_enforced(lab, namespace):
    """A kubelet must not change another node."""
    answer = lab.kubectl(
        *("label", "node", "other-node", "x=y", "--as=system:node:me", "--as-group=system:nodes"),
        check=False,
    )

    assert answer.returncode != 0
    assert "forbidden" in answer.stderr.lower()


def test_a_pod_is_scheduled_and_run_by_the_simulated_node(lab, namespace, clean_nodes):
    clean_nodes("kwok-1=H100:2")
    lab.kubectl(
        *("create", "deployment", "web", "--image=web", "--replicas=2", "-n", namespace),
    )
    lab.kubectl(
        *("wait", "deployment/web", "--for=condition=Available", "--timeout=60s", "-n", namespace),
    )
    where = lab.kubectl("get", "pods", "-n", namespace, "-o", "jsonpath={.items[*].spec.nodeName}").stdout
    assert set(where.split()) == {"kwok-1"}


@pytest.fixture
def clean_nodes(lab):
    """Creates simulated nodes and deletes them afterwards."""
    from croupier_lab import fleet, nodes, testrun

    made: list[str] = []

    def make(*named: str) -> None:
        wanted = nodes.fleet(0, cards=None, named=named)
        made.extend(node.name for node in wanted)
        testrun.run(fleet.create(lab, wanted, NoProgress()))

    yield make
    lab.kubectl("delete", "node", *made, "--wait=false")
