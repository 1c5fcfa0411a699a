"""deployments/cpu: valid manifests with minimal permissions."""

import json
import os
from pathlib import Path

import yaml

from tests.cli import command
from tests.deployments.manifests import documents

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deployments/cpu"


def test_every_file_is_installed():
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]

    assert sorted(listed) == sorted(
        path.name for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml"
    )


def test_the_processes_accept_their_arguments():
    starting = [item for item in documents(FOLDER) if item["kind"] in ("Deployment", "DaemonSet")]
    assert "croupier-cpu-limits" in {item["metadata"]["name"] for item in starting}
    for item in starting:
        (container,) = item["spec"]["template"]["spec"]["containers"]
        help_of = command.run([*container["args"], "--help"], env=os.environ)
        assert help_of.code == 0, help_of.err


def test_no_wildcards_and_only_pod_resizes_are_written():
    roles = [item for item in documents(FOLDER) if item["kind"] in ("Role", "ClusterRole")]
    rules = [rule for role in roles for rule in role["rules"]]

    assert "*" not in json.dumps(rules)
    reading = {"get", "list", "watch"}
    assert {
        resource
        for rule in rules
        for resource in rule["resources"]
        if resource.startswith("pods") and not set(rule["verbs"]) <= reading
    } == {"pods/resize"}


def test_the_api_server_accepts_the_manifests(cluster, crds):
    """Dry run only, because the policies would affect other tests on this cluster."""
    shown = cluster.kubectl("kustomize", str(FOLDER)).stdout
    own = [item for item in yaml.safe_load_all(shown) if item["metadata"].get("namespace") is None]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": own})

    answer = cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=body).stdout

    assert "croupier-podallocation-own-namespace" in answer
    assert len(answer.splitlines()) == len(own)
