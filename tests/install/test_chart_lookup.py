"""What the chart reads from the cluster at an installation or an upgrade: nodes, and the running extender."""

import json
from typing import Any

import yaml

from croupier_lab.lab import Lab
from tests.install import rendering
from tests.install.rendering import ROOT, named, of_kind
from tools import chart

BEFORE: dict[str, tuple[dict[str, str] | None, tuple[str, ...], bool]] = {
    "a new installation": (None, (), False),
    "in memory": ({"croupier.capacityManager": "InMemory"}, (), True),
    "in memory, of version 0.1": ({"croupier.book": "InMemory"}, (), True),
    "no annotation": ({}, (), True),
    "in the API server": ({"croupier.capacityManager": "CRD"}, (), False),
    "in the API server, of version 0.1": ({"croupier.book": "CRD"}, (), False),
    "it stays in memory": ({"croupier.book": "InMemory"}, (rendering.IN_MEMORY,), True),
}
"""The annotations of the running extender, the values, and whether it ends before the next one starts."""


def rendered(lab: Lab, *options: str) -> list[dict[str, Any]]:
    rendering.helm()
    text = chart.rendered(ROOT, f"--kubeconfig={lab.kubeconfig}", "--dry-run=server", *options)
    return [item for item in yaml.load_all(text, Loader=yaml.CSafeLoader) if item]


def replicas(lab: Lab) -> set[int]:
    return {item["spec"]["replicas"] for item in of_kind(rendered(lab), "Deployment")}


def extender(namespace: str, annotations: dict[str, str]) -> str:
    pod = {
        "metadata": {"labels": {"app": "croupier-extender"}, "annotations": annotations},
        "spec": {"containers": [{"name": "extender", "image": "any"}]},
    }
    spec = {"selector": {"matchLabels": {"app": "croupier-extender"}}, "template": pod}
    meta = {"name": "croupier-extender", "namespace": namespace}
    return json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})


async def test_replicas_and_the_order_of_an_upgrade_come_from_the_cluster(private_lab, subtests):
    lab = await private_lab()
    for count, expected in ((0, {2}), (1, {1}), (2, {2})):
        with subtests.test(f"{count} nodes"):
            if count:
                node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{count}"}}
                lab.kubectl("create", "-f", "-", stdin=json.dumps(node))
            assert replicas(lab) == expected
    for number, (name, (annotations, options, waits)) in enumerate(BEFORE.items()):
        with subtests.test(name):
            namespace = f"before-{number}"
            lab.kubectl("create", "namespace", namespace)
            if annotations is not None:
                lab.kubectl("create", "-f", "-", stdin=extender(namespace, annotations))
            found = named(
                rendered(lab, f"--namespace={namespace}", *options), "Deployment", "croupier-extender"
            )
            assert (found["spec"].get("strategy") == {"type": "Recreate"}) is waits
