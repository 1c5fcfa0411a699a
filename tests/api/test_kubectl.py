"""The documented kubectl commands work and show the expected output."""

import json

import pytest
import yaml

from croupier.api import crds as definitions
from tests.api import scenario_tables
from tests.api.scenario_tables import EXAMPLES, KIND, ROOT

SECONDS = 20

PRINTED = """\
apiVersion: mps.nvidia.com/v1
kind: Reservation
metadata: {name: example-reservation, namespace: default}
spec: {podKey: default/my-pod, nodeName: node-1, numCards: 2, percentPerCard: 50}
"""


async def test_the_documented_commands_work_on_a_new_cluster(private_lab):
    lab = await private_lab()

    lab.kubectl("apply", "-f", str(ROOT / "deployments/mps-dra/reservation-crd.yaml"))
    lab.kubectl("wait", "--for=condition=Established", "crd/reservations.mps.nvidia.com")
    lab.kubectl("apply", "-f", "-", stdin=PRINTED)
    shown = lab.kubectl("get", "reservation", "example-reservation", "-n", "default", "-o", "yaml").stdout
    assert yaml.safe_load(shown)["status"] == {"phase": "Pending"}

    lab.kubectl("apply", "-f", str(ROOT / "config/crd/bases/allocation.mbcas.io_podallocations.yaml"))
    lab.kubectl("apply", "-k", f"{ROOT}/config/crd/")
    applied = lab.kubectl("get", "crd", "-o", "name").stdout.split()
    assert len(applied) == len(KIND)

    lab.kubectl("wait", "--for=condition=Established", *applied)
    lab.kubectl("apply", "--dry-run=server", "-f", str(ROOT / "examples"))
    assert "unchanged" in lab.kubectl("apply", "-f", str(ROOT / "config/crd/bases")).stdout


async def test_every_example_is_accepted_and_listed(api, cluster, crds, clean_cluster, namespace):
    for body in EXAMPLES.values():
        kind = KIND[body["kind"]]
        await scenario_tables.create(api, kind, scenario_tables.placed(body, kind, namespace))

    everything = cluster.kubectl("get", definitions.CATEGORY, "-n", namespace, "-o", "name").stdout.split()
    assert len(everything) == len(EXAMPLES)
    for name, expected in SEEN.items():
        lines = cluster.kubectl("get", name, "-n", namespace).stdout.splitlines()
        assert [without_age(line) for line in lines] == expected


def without_age(line: str) -> str:
    """A line of a table without its alignment and its last column."""
    return " ".join(line.split()[:-1])


SEEN = {
    "rsv": [
        "NAME POD NODE CARDS PERCENT PHASE",
        "example-reservation default/my-pod node-1 2 50 Pending",
        "nightly-training default/nightly-training-0 gpu-worker 1 100 Reserved",
    ],
    "nrsv": [
        "NAME CARDS HOLDERS FREE CARDS FREE PERCENT",
        "gpu-worker 1 2",
        "gpu-worker2 1 2",
        "node-1 2 4 0 20",
        "node-2 3 2 1",
    ],
    "gpudev": [
        "NAME NODE STATE POOL PRODUCT HEALTH SCHEDULING",
        "node-1-0000-65-00-0 node-1 Reserved training NVIDIA H100 80GB HBM3 Healthy",
        "node-1-0000-ca-00-0 node-1 Faulted NVIDIA A30 XID79",
    ],
    "gdevice/node-1-0000-ca-00-0": [
        "NAME NODE STATE POOL PRODUCT HEALTH SCHEDULING",
        "node-1-0000-ca-00-0 node-1 Faulted NVIDIA A30 XID79",
    ],
    "gpunode": [
        "NAME BOOTSTRAP READY REASON POOLS DRIVER",
        "node-1 Ready True Ready training 570.86.15",
        "node-3 ValidatingFailed False DriverNotReady",
    ],
    "gpool": [
        "NAME MODE TOTAL USED AVAILABLE UNIT READY",
        "inference MPS",
        "mixed-slices MIG",
        "notebooks TimeSlice",
        "small-slices MIG",
        "training Exclusive 8 3 4 Card True",
    ],
    "palloc": [
        "NAME POD DESIRED APPLIED PHASE REASON",
        "batch-0 batch-0 64 Failed Infeasible: node-1 has 16 CPUs",
        "web-0 web-0 2.5 Pending",
        "web-1 web-1 800m 0.8 Applied",
    ],
}
"""What `kubectl get` shows of the examples, by short name."""

EXPLAINED = {
    "rsv.spec.podKey": "Immutable. Example: default/my-pod.",
    "nrsv.spec.cards.holders": "The holders: namespace/pod/uid to percent",
    "gpudev.status.state": "ENUM: Assigned Faulted Reserved Unassigned",
    "gpunode.status.pools.pending.reason": "Why the cards have not joined",
    "gpool.spec.allocation.timeSlice.maxSlicesPerDevice": "The number of time slices of each card",
    "palloc.spec.desiredCPULimit": "in multiples of 10m, such as 500m, 1 or 2.5. Example: 500m.",
}


@pytest.mark.parametrize(("field", "sentence"), EXPLAINED.items(), ids=EXPLAINED)
def test_kubectl_explain_shows_descriptions(cluster, crds, field, sentence):
    short, _, path = field.partition(".")
    resource = next(kind.resource for kind in KIND.values() if short in kind.short)

    shown = cluster.kubectl(
        "explain", f"{resource.plural}.{path}", f"--api-version={resource.api_version}"
    ).stdout

    assert sentence in " ".join(shown.split())


async def test_objects_are_selected_by_their_fields(api, cluster, crds, clean_cluster, namespace):
    for name in ("reservation", "reservation-with-ttl", "gpudevice", "gpudevice-faulted", "podallocation"):
        kind = KIND[EXAMPLES[name]["kind"]]
        await scenario_tables.create(api, kind, scenario_tables.placed(EXAMPLES[name], kind, namespace))

    def found(kind: str, selector: str) -> list[str]:
        shown = cluster.kubectl(
            "get", kind, "-n", namespace, "--field-selector", selector, "-o", "json"
        ).stdout
        return [item["metadata"]["name"] for item in json.loads(shown)["items"]]

    assert found("rsv", "spec.nodeName=gpu-worker") == ["nightly-training"]
    assert found("rsv", "spec.podKey=default/my-pod") == ["example-reservation"]
    assert found("rsv", "status.phase=Pending") == ["example-reservation"]
    assert found("gpudev", "status.nodeName=node-1,status.state=Faulted") == ["node-1-0000-ca-00-0"]
    assert found("palloc", "spec.podName=web-0") == ["web-0"]


async def test_defaults_are_filled_in(api, crds, clean_cluster):
    pool = await api.create(KIND["GPUPool"].resource.raw, EXAMPLES["gpupool-mps"])

    assert pool["spec"]["deviceAssignment"] == {"requireAnnotation": True}
    assert pool["spec"]["allocation"] == {"mode": "MPS", "rollout": "WholePool"}


async def test_mutable_fields_can_be_changed(api, crds, namespace):
    rsv = KIND["Reservation"]
    body = scenario_tables.placed(EXAMPLES["reservation-with-ttl"], rsv, namespace)
    await api.create(rsv.resource, body)

    change = {"spec": {"ttlSeconds": 60, "priority": -5}}
    changed = await api.patch(rsv.resource, body["metadata"]["name"], change, namespace=namespace)

    assert (changed.spec.ttl_seconds, changed.spec.priority) == (60, -5)


async def test_the_desired_limit_can_change_while_the_last_one_is_applied(api, crds, namespace):
    """`Applied` refers to the observed value, so it does not prevent another desired limit."""
    kind = KIND["PodAllocation"]
    body = scenario_tables.placed(EXAMPLES["podallocation-applied"], kind, namespace)
    await scenario_tables.create(api, kind, body)

    patch = {"spec": {"desiredCPULimit": "1.25"}}
    changed = await api.patch(kind.resource, body["metadata"]["name"], patch, namespace=namespace)

    assert (changed.spec.desired_cpu_limit, changed.status.phase) == ("1.25", "Applied")


GOOD_LIMITS = ["2.5", "500m", "1", "10m", "0.01", "1.250", "100000", "1000m", "0.50"]


async def test_multiples_of_ten_milli_are_accepted(api, crds, namespace):
    kind = KIND["PodAllocation"]
    for limit in GOOD_LIMITS:
        spec = {"spec": {"desiredCPULimit": limit}}
        body = scenario_tables.merged(
            scenario_tables.placed(EXAMPLES["podallocation"], kind, namespace), spec
        )
        assert (await api.create(kind.resource, body, dry_run=True)).spec.desired_cpu_limit == limit
