"""What deployments/cpu installs: accepted as printed, and as narrow as promised."""

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.cli.command import CROUPIER

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deployments/cpu"


def documents() -> list[dict[str, Any]]:
    return [
        one
        for path in sorted(FOLDER.glob("*.yaml"))
        for one in yaml.safe_load_all(path.read_text())
        if one["kind"] != "Kustomization"
    ]


def test_every_file_is_installed():
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]

    assert sorted(listed) == sorted(
        path.name for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml"
    )


def test_the_processes_are_started_with_options_they_know():
    starting = [one for one in documents() if one["kind"] in ("Deployment", "DaemonSet")]
    assert "croupier-cpu-limits" in {one["metadata"]["name"] for one in starting}
    for one in starting:
        (container,) = one["spec"]["template"]["spec"]["containers"]
        ended = subprocess.run([*CROUPIER, *container["args"], "--help"], capture_output=True, check=False)
        assert ended.returncode == 0, ended.stderr


def test_no_rule_has_a_wildcard_and_pods_are_written_by_resize_alone():
    roles = [one for one in documents() if one["kind"] in ("Role", "ClusterRole")]
    rules = [rule for role in roles for rule in role["rules"]]

    assert "*" not in json.dumps(rules)
    reading = {"get", "list", "watch"}
    assert {
        resource
        for rule in rules
        for resource in rule["resources"]
        if resource.startswith("pods") and not set(rule["verbs"]) <= reading
    } == {"pods/resize"}


def test_kubectl_accepts_it_as_printed(cluster, crds):
    """Without a trace: the policies would be felt by others who share this cluster."""
    shown = cluster.kubectl("kustomize", str(FOLDER)).stdout
    own = [one for one in yaml.safe_load_all(shown) if one["metadata"].get("namespace") is None]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": own})

    answer = cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=body).stdout

    assert "croupier-podallocation-own-namespace" in answer
    assert len(answer.splitlines()) == len(own)
