"""The predicted node obstacles match the messages of the real scheduler."""

from datetime import UTC, datetime
from typing import Any

import pytest

from croupier.api import convert_affinity as reading
from croupier.api import kinds
from croupier.core.pods import scheduler_filters
from croupier.kube.client.api_client import Client
from croupier_lab import nodes
from tests import polling

TAINT = {"key": "dedicated", "value": "others", "effect": "NoSchedule"}
NEW = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
"""Every node has this taint until it is ready. It is not part of this test."""
EXPRESSION = {"key": "disk", "operator": "In", "values": ["fast"]}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [EXPRESSION]}]
        }
    }
}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "cordoned": ({"unschedulable": True}, {}),
    "tainted": ({"taints": [TAINT]}, {}),
    "not selected": ({}, {"nodeSelector": {"disk": "fast"}}),
    "out of its affinity": ({}, {"affinity": AFFINITY}),
}


@pytest.mark.parametrize(("node", "pod"), CASES.values(), ids=CASES)
async def test_the_scheduler_says_the_same(api, clean_cluster, namespace, node, pod):
    simulated = nodes.SimulatedNode("asked-1", "zone-a", nodes.parse_cards("T4:1"))
    body = nodes.manifest(simulated, datetime.now(UTC))
    body["spec"] = {**body.get("spec", {}), **node}
    made = await api.create(kinds.NODES, body)
    spec = {"containers": [{"name": "c", "image": "i"}], "tolerations": [NEW], **pod}
    waits = await api.create(kinds.PODS, {"metadata": {"name": "p", "namespace": namespace}, "spec": spec})

    predicted = scheduler_filters.rejection(reading.node_facts(made), reading.pod_needs(waits))

    assert predicted
    await polling.until_async(lambda: _says(api, namespace, predicted), f"the scheduler to say {predicted!r}")


async def _says(api: Client, namespace: str, sentence: str) -> bool:
    pod = await api.get(kinds.PODS, "p", namespace=namespace)
    return any(sentence in condition.message for condition in pod.status.conditions)
