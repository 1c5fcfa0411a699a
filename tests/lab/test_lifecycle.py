"""A lab comes up with real TLS and RBAC, stands beside others, and leaves nothing running."""

import asyncio
import contextlib
import json
import os
import ssl
from dataclasses import replace

import pytest

from croupier.lab import controlplane, lifecycle, ports, probe, process, record
from croupier.lab.binaries import Sources
from croupier.lab.controlplane import API_SERVER, ETCD, FOUNDATION
from croupier.lab.errors import LabError
from croupier.lab.lab import Lab
from croupier.lab.lifecycle import Plan
from croupier.lab.probe import Endpoint
from croupier.lab.progress import Plain, Silent
from croupier.lab.record import State

SECONDS = 100


@pytest.fixture
def plan(tmp_path, pytestconfig):
    """The smallest lab, in a folder of its own."""
    env = {**os.environ, "CROUPIER_HOME": str(tmp_path)}
    sources = Sources(named=pytestconfig.getoption("--lab-bin"), env=env)
    return Plan(name="tested", parts=FOUNDATION, sources=sources)


@contextlib.asynccontextmanager
async def raised(plan: Plan):
    lab, _ = await lifecycle.up(plan, Silent())
    try:
        yield lab
    finally:
        await lifecycle.down(plan.place, Silent())


def running(lab: Lab) -> list[str]:
    return [one.name for one in lab.record.processes if process.alive(one)]


async def test_down_leaves_no_process_frees_the_ports_and_keeps_the_logs(plan):
    lab, new = await lifecycle.up(plan, Silent())
    assert new
    assert running(lab) == [ETCD, API_SERVER]
    assert not ports.is_free(lab.record.ports[API_SERVER])

    assert await lifecycle.down(plan.place, Silent())

    assert running(lab) == []
    assert all(ports.is_free(port) for port in lab.record.ports.values())
    assert [path.name for path in lab.folder.iterdir()] == ["logs"]
    assert (lab.logs / "kube-apiserver.log").stat().st_size > 0
    assert not await lifecycle.down(plan.place, Silent())


async def test_up_again_finds_the_same_lab_and_two_at_once_raise_one(plan):
    async with raised(plan) as lab:
        (again, new), (third, newer) = await asyncio.gather(
            lifecycle.up(plan, Silent()), lifecycle.up(plan, Silent())
        )

        assert (new, newer) == (False, False)
        assert again.record == third.record == lab.record


async def test_two_labs_stand_side_by_side_and_know_nothing_of_each_other(plan):
    async with raised(plan) as one, raised(replace(plan, name="other")) as two:
        one.kubectl("create", "namespace", "only-in-one")

        assert "only-in-one" in one.kubectl("get", "namespaces").stdout
        assert "only-in-one" not in two.kubectl("get", "namespaces").stdout
        assert {one.name, two.name} == {lab.name for lab in lifecycle.existing(plan.sources.env)}
        stranger = replace(two.cluster, kubeconfig=one.kubeconfig)
        refused = stranger.kubectl("get", "namespaces", f"--server={two.server}", check=False)
        assert refused.returncode != 0
        assert "certificate" in refused.stderr


async def test_a_lab_that_lost_a_part_is_cleaned_up_and_raised_anew(plan):
    heard: list[str] = []
    async with raised(plan) as lab:
        lab.kubectl("create", "namespace", "before-the-crash")
        lab.kill(ETCD)
        assert await process.gone(lab.process(ETCD), within=5)
        assert record.state(lab.record) is State.BROKEN

        again, new = await lifecycle.up(plan, Plain(heard.append))

        assert new
        assert "Lab tested did not end properly last time: cleaning up" in heard
        assert running(lab) == []
        assert running(again) == [ETCD, API_SERVER]
        assert "before-the-crash" not in again.kubectl("get", "namespaces").stdout


async def test_a_part_that_will_not_start_is_named_with_the_end_of_its_log(plan):
    broken = replace(plan, extra={API_SERVER: ("--no-such-flag",)})

    with pytest.raises(LabError) as failure:
        await lifecycle.up(broken, Silent())

    log = plan.place / "logs" / "kube-apiserver.log"
    assert f"kube-apiserver ended while it was starting. Its log is {log} and ends:" in str(failure.value)
    assert "no-such-flag" in str(failure.value)
    assert log.exists()
    assert record.load(plan.place) is None


async def test_a_part_that_takes_too_long_is_named_and_nothing_is_left(plan):
    with pytest.raises(LabError, match=r"was not ready within 0.01 seconds"):
        await lifecycle.up(replace(plan, timeout=0.01), Silent())

    assert record.load(plan.place) is None


async def test_an_interrupted_start_leaves_nothing_running(plan):
    task = asyncio.create_task(lifecycle.up(plan, Silent()))
    async with asyncio.timeout(30):
        while (seen := record.load(plan.place)) is None or len(seen.processes) < 2:  # noqa: ASYNC110 (a file)
            await asyncio.sleep(0.02)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [one.name for one in seen.processes if process.alive(one)] == []
    assert record.load(plan.place) is None


async def test_a_port_taken_at_the_last_moment_is_replaced(plan, monkeypatch):
    async with raised(replace(plan, name="neighbour")) as neighbour:
        honest, taken = ports.free, [True]

        def careless(count, *, chance):
            """As if the neighbour had taken the port after we looked."""
            found = honest(count, chance=chance)
            if taken.pop() if taken else False:
                return (neighbour.record.ports[ETCD], *found[1:])
            return found

        monkeypatch.setattr(ports, "free", careless)
        heard: list[str] = []
        lab, _ = await lifecycle.up(plan, Plain(heard.append))
        await lifecycle.end(lab)

        assert "Another program took one of the chosen ports: trying others" in heard
        assert running(neighbour) == [ETCD, API_SERVER]


async def test_parts_can_be_killed_frozen_and_brought_back_with_their_data(plan):
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


async def test_after_compaction_the_past_is_gone(plan):
    async with raised(plan) as lab:
        namespaces = json.loads(lab.kubectl("get", "--raw", "/api/v1/namespaces").stdout)
        before = namespaces["metadata"]["resourceVersion"]
        lab.kubectl("create", "namespace", "later")
        lab.etcd_compact()

        # Events are the one kind the API server keeps no memory of its own for.
        old = f"/api/v1/events?resourceVersion={before}&resourceVersionMatch=Exact"
        answer = lab.kubectl("get", "--raw", old, check=False)

        assert answer.returncode != 0
        assert "Expired" in answer.stderr


def test_nobody_gets_in_without_a_name_or_with_a_foreign_one(lab):
    site = lab.site
    without_name = Endpoint(f"{lab.server}/api/v1/namespaces", site.authority)
    status, answer = probe.get(without_name)
    assert status == 403
    assert "system:anonymous" in answer

    with_etcds_name = Endpoint(without_name.url, site.authority, site.pair("etcd-client"))
    with contextlib.suppress(OSError):
        assert probe.get(with_etcds_name)[0] in (401, 403)

    with pytest.raises(ssl.SSLError):  # the cluster's authority vouches for nobody at etcd
        probe.get(replace(controlplane.etcd_endpoint(site, "/health"), pair=site.pair("admin")))


def test_an_account_without_rights_is_refused_until_it_is_given_some(lab: Lab, namespace: str):
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


def test_admission_is_real(lab, namespace):
    """NodeRestriction: a kubelet may not speak for another node."""
    answer = lab.kubectl(
        *("label", "node", "somebody-else", "x=y", "--as=system:node:me", "--as-group=system:nodes"),
        check=False,
    )

    assert answer.returncode != 0
    assert "forbidden" in answer.stderr.lower()


def test_a_pod_is_scheduled_and_run_by_the_simulated_node(lab, namespace, clean_nodes):
    """Controller manager, scheduler and KWOK do their part."""
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
    """Makes simulated nodes, and takes them away."""
    from croupier.lab import fleet, nodes, testrun

    made: list[str] = []

    def make(*named: str) -> None:
        wanted = nodes.fleet(0, cards=None, named=named)
        made.extend(node.name for node in wanted)
        testrun.run(fleet.create(lab, wanted, Silent()))

    yield make
    lab.kubectl("delete", "node", *made, "--wait=false")
