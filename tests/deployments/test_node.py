"""What deployments/node installs: accepted as printed, and as narrow as promised."""

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.cli.command import CROUPIER

FOLDER = Path(__file__).resolve().parents[2] / "deployments/node"


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


def test_the_agent_is_started_with_options_it_knows_and_sees_what_they_name():
    (agent,) = [one for one in documents() if one["kind"] == "DaemonSet"]
    spec = agent["spec"]["template"]["spec"]
    (container,) = spec["containers"]

    ended = subprocess.run([*CROUPIER, *container["args"], "--help"], capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert {one["name"] for one in container["env"]} >= {"NODE_NAME"}
    mounted = {one["mountPath"] for one in container["volumeMounts"]}
    options = dict(word.removeprefix("--").split("=", 1) for word in container["args"][1:])
    assert {options["host"], options["state"]} <= mounted
    assert {f"{options['kubelet']}/device-plugins", f"{options['kubelet']}/pod-resources"} <= mounted
    assert {one["name"] for one in spec["volumes"]} == {one["name"] for one in container["volumeMounts"]}
    assert agent["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0, "never two agents on a node"


def test_no_rule_has_a_wildcard_and_whoever_writes_is_held_to_its_node():
    found = documents()
    rules = [rule for one in found if one["kind"] in ("Role", "ClusterRole") for rule in one["rules"]]
    assert "*" not in json.dumps(rules)
    reading = {"get", "list", "watch"}
    written = {
        resource for rule in rules if not set(rule["verbs"]) <= reading for resource in rule["resources"]
    }

    held = {
        resource
        for one in found
        if one["kind"] == "ValidatingAdmissionPolicy"
        for rule in one["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }
    assert written - held == {"events"}, "an Event is a courtesy; everything else is of the own node alone"


def test_kubectl_accepts_it_as_printed(cluster, crds):
    """Without a trace: the policies would be felt by others who share this cluster."""
    shown = cluster.kubectl("kustomize", str(FOLDER)).stdout
    own = [one for one in yaml.safe_load_all(shown) if one["metadata"].get("namespace") is None]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": own})

    answer = cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=body).stdout

    assert len(answer.splitlines()) == len(own)
