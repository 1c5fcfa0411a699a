"""Wire types round-trip through JSON with the field names of Kubernetes."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from croupier.api import core_v1, kinds, wire
from croupier.api.core_v1 import Pod
from croupier.api.mps.reservation import Reservation
from croupier.kube.client import codec
from croupier.kube.client.resource import Resource
from tests.api import strategies
from tests.api.scenario_tables import EXAMPLES, KIND

EVERY: dict[str, Resource[Any]] = {
    "Pod": kinds.PODS,
    "Node": kinds.NODES,
    "Namespace": kinds.NAMESPACES,
    "ConfigMap": kinds.CONFIG_MAPS,
    "Lease": kinds.LEASES,
    "Event": kinds.EVENTS,
    **{name: kind.resource for name, kind in KIND.items()},
}
SPELLING = {
    "pod_uid": "podUID",
    "inventory_ids": "inventoryIDs",
    "pci_ids": "pciIDs",
    "desired_cpu_limit": "desiredCPULimit",
    "memory_mib": "memoryMiB",
    "temperature_c": "temperatureC",
    "uid": "uid",
    "max_slices_per_device": "maxSlicesPerDevice",
}


@pytest.mark.parametrize(("python", "kubernetes"), SPELLING.items(), ids=SPELLING)
def test_json_field_names(python, kubernetes):
    assert wire.json_name(python) == kubernetes


@pytest.mark.parametrize("resource", EVERY.values(), ids=EVERY)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_every_value_round_trips_through_json(resource, data):
    something = data.draw(strategies.any_of(resource.type))

    assert codec.decode(resource.type, msgspec.json.encode(something)) == something


@pytest.mark.parametrize("body", EXAMPLES.values(), ids=EXAMPLES)
def test_every_example_round_trips_through_its_type(body):
    type_ = KIND[body["kind"]].resource.type
    typed = msgspec.convert(body, type_)

    assert codec.decode(type_, msgspec.json.encode(typed)) == typed


def test_null_means_absent():
    """Go writes its empty lists, maps and times as null."""
    sent = {
        "metadata": {"name": "p", "labels": None, "creationTimestamp": None},
        "spec": {"containers": None, "initContainers": None, "overhead": None},
        "status": {"conditions": None, "containerStatuses": [{"name": "c", "resources": None}]},
    }

    pod = codec.decode(Pod, msgspec.json.encode(sent))

    assert (pod.spec.containers, pod.metadata.labels, pod.status.conditions) == ((), {}, ())


def test_unknown_fields_are_ignored():
    sent = b'{"metadata":{"name":"p","managedFields":[{}]},"spec":{"containers":[{"name":"c","image":"i"}]}}'

    assert [container.name for container in codec.decode(Pod, sent).spec.containers] == ["c"]


def test_defaults_are_not_encoded():
    spec = {"podKey": "default/p", "nodeName": "n", "numCards": 1, "percentPerCard": 50}
    reservation = msgspec.convert({"metadata": {"name": "r"}, "spec": spec}, Reservation)

    assert msgspec.to_builtins(reservation) == {"metadata": {"name": "r"}, "spec": spec}


def test_lease_times_have_exactly_six_digits():
    """Go refuses a MicroTime with fewer."""
    assert core_v1.micro_time(datetime(2030, 1, 31, 12, tzinfo=UTC)) == "2030-01-31T12:00:00.000000Z"


def test_a_sidecar_is_an_init_container_that_restarts_always():
    sent = b'{"spec":{"initContainers":[{"name":"first"},{"name":"proxy","restartPolicy":"Always"}]}}'

    init_containers = codec.decode(Pod, sent).spec.init_containers
    assert [container.is_sidecar for container in init_containers] == [False, True]


@pytest.mark.parametrize(
    ("phase", "finished"), [("Running", False), ("Pending", False), ("Succeeded", True), ("Failed", True)]
)
def test_finished_pods(phase, finished):
    assert Pod(status=core_v1.PodStatus(phase=phase)).is_finished is finished
