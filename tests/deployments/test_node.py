"""deployments/node: valid manifests with minimal permissions."""

import json
import os
from pathlib import Path
from typing import Any

import yaml

from tests.cli import command
from tests.deployments.manifests import documents

FOLDER = Path(__file__).resolve().parents[2] / "deployments/node"


def test_every_file_is_installed():
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]

    assert sorted(listed) == sorted(
        path.name for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml"
    )


def test_the_agent_accepts_its_arguments_and_mounts_its_paths():
    agent = _daemon_set("croupier-node")
    spec = agent["spec"]["template"]["spec"]
    (container,) = spec["containers"]

    help_of = command.run([*container["args"], "--help"], env=os.environ)
    assert help_of.code == 0, help_of.err
    assert {item["name"] for item in container["env"]} >= {"NODE_NAME"}
    mounted = {item["mountPath"] for item in container["volumeMounts"]}
    options = dict(word.removeprefix("--").split("=", 1) for word in container["args"][1:])
    assert {options["host"], options["state"], options["mps"]} <= mounted
    assert {f"{options['kubelet']}/device-plugins", f"{options['kubelet']}/pod-resources"} <= mounted
    assert {item["name"] for item in spec["volumes"]} == {item["name"] for item in container["volumeMounts"]}
    assert agent["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0, "never two agents on a node"


def _daemon_set(name: str) -> dict[str, Any]:
    return next(
        item for item in documents(FOLDER) if item["kind"] == "DaemonSet" and item["metadata"]["name"] == name
    )


def test_mps_daemons_are_apart_from_the_agent_and_share_its_folder():
    supervisor, agent = _daemon_set("croupier-mps"), _daemon_set("croupier-node")
    (container,) = supervisor["spec"]["template"]["spec"]["containers"]
    help_of = command.run([*container["args"], "--help"], env=os.environ)

    assert help_of.code == 0, help_of.err
    assert supervisor["spec"]["updateStrategy"] == {"type": "OnDelete"}, "an update would end running pods"
    folder = container["args"][1].removeprefix("--folder=")
    (agent_container,) = agent["spec"]["template"]["spec"]["containers"]
    assert f"--mps={folder}" in agent_container["args"]
    for item in (supervisor, agent):
        volumes = item["spec"]["template"]["spec"]["volumes"]
        assert {"path": folder, "type": "DirectoryOrCreate"} in [volume["hostPath"] for volume in volumes]


def test_no_wildcards_and_writes_are_limited_to_the_own_node():
    found = documents(FOLDER)
    rules = [rule for item in found if item["kind"] in ("Role", "ClusterRole") for rule in item["rules"]]
    assert "*" not in json.dumps(rules)
    reading = {"get", "list", "watch"}
    written = {
        resource for rule in rules if not set(rule["verbs"]) <= reading for resource in rule["resources"]
    }

    held = {
        resource
        for item in found
        if item["kind"] == "ValidatingAdmissionPolicy"
        for rule in item["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
    }
    assert written - held == {"events"}, "all writes but Events are limited to the own node"


def test_the_api_server_accepts_the_manifests(cluster, crds):
    """Dry run only, because the policies would affect other tests on this cluster."""
    shown = cluster.kubectl("kustomize", str(FOLDER)).stdout
    own = [item for item in yaml.safe_load_all(shown) if item["metadata"].get("namespace") is None]
    body = json.dumps({"apiVersion": "v1", "kind": "List", "items": own})

    answer = cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=body).stdout

    assert len(answer.splitlines()) == len(own)
