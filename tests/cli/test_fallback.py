"""`croupier fallback`: preview of admission, without writes."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.api import kinds
from croupier.kube.client.api_client import Client, Selection
from croupier_lab import nodes
from tests.cli.env import CommandResult, croupier

ROOT = Path(__file__).resolve().parents[2]
SMALL, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"


def pod(*, of: str = LARGE, count: int = 1, **meta: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "any", "resources": {"limits": {of: count}}}
    return {"kind": "Pod", "metadata": {"name": "job", **meta}, "spec": {"containers": [container]}}


def ask(workload: Any, *args: str, offers: Any, tmp_path: Path) -> CommandResult:
    """Run `croupier fallback` with the nodes' resources in a file."""
    path = tmp_path / "nodes.yaml"
    path.write_text(yaml.safe_dump_all(offers) if isinstance(offers, list) else yaml.safe_dump(offers))
    return croupier("fallback", "-f", "-", "--nodes", str(path), *args, stdin=yaml.safe_dump(workload))


ENDINGS = {
    "changed": (pod(), {"n": {SMALL: 28}}, (), 3, "Pod job would be changed."),
    "unchanged": (
        pod(),
        {"n": {LARGE: 8}},
        (),
        0,
        "would be admitted as it is: nodes offer all it requests.",
    ),
    "no cards": (pod(of="cpu"), {"n": {LARGE: 8}}, (), 0, "as it is: it requests no cards."),
    "whole cards are not replaced": (
        pod(of="nvidia.com/gpu"),
        {"n": {LARGE: 8}},
        (),
        0,
        "as it is: nvidia.com/gpu is not a MIG profile.",
    ),
    "nothing fits": (
        pod(),
        {"n": {SMALL: 28}},
        ("--direction", "up"),
        4,
        "would be admitted and stay pending.",
    ),
    "refused": (
        pod(),
        {"n": {"cpu": 8}},
        ("--when-nothing-fits", "Deny"),
        4,
        "Pod job would be rejected.\n\nNo node offers nvidia.com/mig-2g.20gb",
    ),
    "unreadable": (
        pod(annotations={"gpu-webhook.k8s.io/fallback-policy": "left"}),
        {"n": {SMALL: 28}},
        (),
        4,
        'Annotation gpu-webhook.k8s.io/fallback-policy is "left": it must be nearest, down, up or off.',
    ),
    "minimum memory in an annotation": (
        pod(annotations={"gpu-webhook.k8s.io/min-memory": "15Gi"}),
        {"n": {SMALL: 28, "gpu": 1}},
        (),
        3,
        "+ nvidia.com/gpu: 1",
    ),
    "scaled": (pod(), {"n": {SMALL: 28}}, ("--quantities", "scale"), 3, "+ nvidia.com/mig-1g.10gb: 2"),
    "a request without a limit": (
        {"kind": "Pod", "spec": {"containers": [{"name": "m", "resources": {"requests": {SMALL: 1}}}]}},
        {"n": {SMALL: 28}},
        (),
        3,
        "Pod without a name would get missing limits.",
    ),
}


@pytest.mark.parametrize(("workload", "offers", "args", "code", "said"), ENDINGS.values(), ids=ENDINGS)
def test_decision_and_exit_code(workload, offers, args, code, said, tmp_path):
    answer = ask(workload, *args, offers=offers, tmp_path=tmp_path)

    assert (answer.code, answer.err) == (code, "")
    assert said in answer.out


def test_json_and_yaml_contain_the_whole_decision(tmp_path):
    job = {"kind": "Job", "metadata": {"name": "batch"}, "spec": {"template": {"spec": pod()["spec"]}}}

    answer = ask(job, "-o", "json", offers={"n": {SMALL: 28}}, tmp_path=tmp_path)
    same = ask(job, "-o", "yaml", offers={"n": {SMALL: 28}}, tmp_path=tmp_path)

    assert answer.data == yaml.safe_load(same.out)
    limits = "/spec/containers/0/resources/limits"
    assert answer.data == {
        "pod": "batch",
        "state": "Rewritten",
        "rewrites": [{"container": "main", "from": "2g.20gb", "to": "1g.10gb", "asked": 1, "given": 1}],
        "annotation": "2g.20gb->1g.10gb",
        "sentences": [
            "no node offers nvidia.com/mig-2g.20gb: container main gets nvidia.com/mig-1g.10gb instead, "
            "the nearest smaller profile there is"
        ],
        "patch": [
            {"op": "remove", "path": f"{limits}/nvidia.com~1mig-2g.20gb"},
            {"op": "add", "path": f"{limits}/nvidia.com~1mig-1g.10gb", "value": "1"},
            {
                "op": "add",
                "path": "/metadata/annotations",
                "value": {"gpu-webhook.k8s.io/fallback": "2g.20gb->1g.10gb"},
            },
        ],
        "offers": {SMALL: {"nodes": 1, "allocatable": "28"}},
    }


BAD = {
    "no pod": (["-f", "-"], "kind: Service", "contains none"),
    "wrong types": (
        ["-f", "-"],
        "kind: Pod\nspec: {containers: 7}",
        "not a valid pod: spec.containers must be a list",
    ),
    "missing nodes file": (["-f", "-", "--nodes", "none.yaml"], "kind: Pod\nspec: {}", "No such file"),
    "unknown direction": (
        ["-f", "-", "--direction", "left"],
        "kind: Pod",
        "must be nearest, down, up or off",
    ),
    "invalid memory": (["-f", "-", "--min-memory", "10GB"], "kind: Pod", "such as 10Gi"),
    "unknown quantities": (["-f", "-", "--quantities", "double"], "kind: Pod", "must be keep or scale"),
    "unknown output": (["-f", "-", "-o", "xml"], "kind: Pod", "must be table, json or yaml"),
}


@pytest.mark.parametrize(("args", "stdin", "said"), BAD.values(), ids=BAD)
def test_what_cannot_be_meant_is_refused_with_exit_code_2(args, stdin, said):
    refused = croupier("fallback", *args, stdin=stdin)

    assert refused.code == 2
    assert said in refused.err


def test_a_file_that_tells_of_no_nodes_is_refused(tmp_path):
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump(pod()))

    refused = croupier("fallback", "-f", str(path), "--nodes", "-", stdin="kind: Pod")

    assert (refused.code, refused.err) == (2, "croupier: --nodes -: it describes no node.\n")


async def node(api: Client, name: str, **allocatable: str) -> None:
    """A KWOK node that was cut; profiles with _ for the dot."""
    body = nodes.manifest(nodes.SimulatedNode(name, "zone-a"), datetime.now(UTC))
    cut = {f"nvidia.com/mig-{profile.replace('_', '.')}": count for profile, count in allocatable.items()}
    resources = {**body["status"]["allocatable"], **cut}
    body["status"] = {**body["status"], "allocatable": resources, "capacity": resources}
    await api.create(kinds.NODES, body)


async def test_a_cluster_is_asked_and_not_changed(api, crds, clean_cluster, cluster, namespace, tmp_path):
    await node(api, "cut-1", **{"1g_10gb": "2", "2g_20gb": "4"})
    await node(api, "cut-2", **{"2g_20gb": "0"})
    holder = pod(count=4, name="holder", namespace=namespace)
    await api.create(kinds.PODS.raw, {**holder, "spec": {**holder["spec"], "nodeName": "cut-1"}})
    wanted = pod(of="nvidia.com/mig-3g.40gb")

    def live(*args: str) -> CommandResult:
        asked = ("fallback", "-f", "-", "-o", "json", *args)
        return croupier(*asked, stdin=yaml.safe_dump(wanted), kubeconfig=cluster.kubeconfig)

    plain, free = live(), live("--prefer-available")
    printed = json.loads(cluster.kubectl("get", "nodes,pods", "-A", "-o", "json").stdout)
    same = ask(wanted, "-o", "json", "--prefer-available", offers=printed, tmp_path=tmp_path)

    assert (plain.code, free.code) == (3, 3)
    assert plain.data["annotation"] == "3g.40gb->2g.20gb"
    assert plain.data["offers"][LARGE] == {"nodes": 1, "allocatable": "4"}
    assert free.data["annotation"] == "3g.40gb->1g.10gb"
    assert free.data["offers"][LARGE] == {"nodes": 1, "allocatable": "4", "mostFree": "0"}
    assert same.data == free.data
    there = (await api.list(kinds.PODS, Selection(namespace=namespace))).items
    assert [one.metadata.name for one in there] == ["holder"]


PAGE = (ROOT / "docs/fallback.md").read_text()
PRINTED = dict(re.findall(r"```console\n\$ croupier ([^\n]+)\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.parametrize(("typed", "printed"), PRINTED.items(), ids=PRINTED)
def test_the_page_shows_what_is_printed(typed, printed, monkeypatch):
    monkeypatch.chdir(ROOT)

    assert croupier(*typed.split()).out == printed
