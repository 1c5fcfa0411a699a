"""An installation on a real node: installed by README.md, used, upgraded and removed.

One test, because each step needs the previous ones: pods of the first step must still run in the last. The
commands of the documentation are run as printed, and their documented output is checked.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.core import quantity
from croupier_lab import installation, own_image, realnode
from croupier_lab.installation import NAMESPACE, RELEASE
from croupier_lab.lab import Lab
from tests.docs import blocks
from tests.docs.blocks import Block
from tests.install import real_node_env
from tests.install.real_node_env import NEW, OLD, README, TIMEOUT, RealNodeEnv
from tests.install.rendering import IN_MEMORY, ROOT, objects, of_kind
from tests.polling import until_blocking

SECONDS = 380

EXAMPLES = ROOT / "examples"
GUIDE = ROOT / "docs/guide.md"
OPERATIONS = ROOT / "docs/operations.md"
GUIDES = sorted(ROOT.glob("docs/install-*.md"))
ACCOUNTS = {
    "gpu-inventory-controller",
    "gpu-bootstrap-controller",
    "gpupool-controller",
    "croupier-cpu-limits",
    "gpu-admission-webhook",
    "croupier-extender",
    "croupier-ledger",
    "croupier-node",
    "croupier-market",
}
HELD = {
    "apiVersion": "mps.nvidia.com/v1",
    "kind": "Reservation",
    "metadata": {"name": "held", "namespace": "default"},
    "spec": {"podKey": "default/later", "nodeName": realnode.NAME, "numCards": 1, "percentPerCard": 30},
}
SEEN = (
    "Pod default/my-pod: the pod is bound to this-machine and holds 50 % of card 0 and 50 % of card 1",
    "by +Reservation example-reservation",
    "card 0 .* default/trainer 100 %",
    r"^CROUPIER_CDI_\d_1G_10GB_\d=MIG-",
    "^Warning: no node offers nvidia.com/mig-2g.20gb: container trainer gets nvidia.com/mig-1g.10gb instead",
    "^2g.20gb->1g.10gb$",
    "^test +1g.10gb->2g.20gb$",
    "^training-job +<none>$",
    "busy +20m +100m +Failed +BelowRequest: .* set at least 50m +200m",
    r"^busy +1/1 +Running +0 ",
    r"^default/worker +latency ",
    r"^worker +1/1 +Running +0 ",
    r"^web +1/1 +Running +0 ",
)
"""Output documented in examples/README.md."""
ORIGINAL_LIMIT = "200m"


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print the duration of a step (shown with -s)."""
    begun = time.monotonic()
    yield
    print(f"{time.monotonic() - begun:6.1f} s  {title}")  # noqa: T201 (shown with -s)


def test_the_guide_and_the_readme_have_the_same_commands():
    for where in ("installation up", "installation", "installation down"):
        first, guide = (
            [item.text.strip() for item in blocks.marked(page, where)] for page in (README, GUIDE)
        )
        assert first
        assert guide == first


def test_install_use_upgrade_and_remove(pytestconfig: pytest.Config, tmp_path: Path):
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("starts its own lab, but --kubeconfig selects another cluster")
    if reason := realnode.obstacle() or own_image.obstacle():
        pytest.skip(reason)
    begun = time.monotonic()
    with real_node_env.raised(tmp_path, between=_accepted) as at:
        print(f"{time.monotonic() - begun:6.1f} s  lab started and chart installed")  # noqa: T201 (shown with -s)
        _readme_example(at)
        _every_example(at)
        _life(at)
        _end(at)


def _accepted(lab: Lab) -> None:
    with step("manifests are accepted"):
        lab.kubectl("create", "namespace", NAMESPACE)
        _plain_manifests_are_accepted(lab)
        _all_but_the_agents_are_restricted(lab)


def _readme_example(at: RealNodeEnv) -> None:
    with step("the pod of README.md, and doctor"):
        _all_pods_are_ready(at, ACCOUNTS, OLD)
        output = at.reader.types(blocks.marked(README, "installation"))
        for line in _printed_by_the_pod():
            assert line in output, output
        assert "No findings: versions, crds, processes, settings" in output
    with step("helm test"):
        output = at.helm("test", RELEASE, "--logs")
        assert re.search("TEST SUITE: +croupier-doctor\n.*\n.*\nPhase: +Succeeded", output), output
        assert "No findings: versions, crds, processes, settings" in output
        assert "croupier-doctor" not in at.kubectl("get", "roles,serviceaccounts", "-n", NAMESPACE)
    with step("commands of the operations guides"):
        at.reader.types(_commands_of(*GUIDES, OPERATIONS))


def _commands_of(*pages: Path) -> list[Block]:
    """The commands of the pages, without those that README.md or an earlier page has."""
    known = {line for block in blocks.marked(README, "installation") for line in block.text.splitlines()}
    made = []
    for block in (block for page in pages for block in blocks.marked(page, "installation")):
        new = [line for line in block.text.splitlines() if line not in known]
        known.update(new)
        made.append(replace(block, text="\n".join(new)))
    return [block for block in made if block.text]


def _printed_by_the_pod() -> list[str]:
    """Output of the pod as documented in README.md, without variable parts."""
    (shown,) = (item.text for item in blocks.blocks(README) if "CUDA_MPS_ACTIVE" in item.text)
    return [line.partition("...")[0] for line in shown.split()]


def _every_example(at: RealNodeEnv) -> None:
    with step("every example"):
        output = at.reader.types(blocks.marked(EXAMPLES / "README.md", "installation"))
        for seen in SEEN:
            assert re.search(seen, output, re.MULTILINE), f"{seen}:\n{output}"
        rose, fell = re.findall(r"^\d+m$", output, re.MULTILINE)
        assert quantity.parse(rose) > quantity.parse(ORIGINAL_LIMIT)
        assert quantity.parse(fell) < quantity.parse(rose)


def _life(at: RealNodeEnv) -> None:
    with step("a reservation is held"):
        _a_reservation_is_held(at)
        running = _state(at)
        real_node_env.add_version(at, NEW)
    with step("croupier lab up refuses a second Croupier"):
        _a_second_croupier_is_refused(at)
    with step("doctor reports a problem"):
        _doctor_reports_a_problem(at)

    with step("upgrade, with the ledger in memory"):
        at.install_by_hand(NEW, IN_MEMORY)
        _all_pods_are_ready(at, ACCOUNTS - {"croupier-ledger"}, NEW)
        _goes_on(at, running)

    with step("downgrade, with the ledger in the API server"):
        at.install()
        _all_pods_are_ready(at, ACCOUNTS, OLD)
        _goes_on(at, running)
        _the_ledger_has(at, {"team-a/half", "default/held"})


def _end(at: RealNodeEnv) -> None:
    with step("uninstall"):
        running = _state(at)
        at.reader.types(blocks.marked(OPERATIONS, "installation ends"))
        assert _state(at) == running
        _nothing_is_left(at)


def _plain_manifests_are_accepted(lab: Lab) -> None:
    folder = ROOT / "deployments/default"
    output = lab.kubectl("apply", "--server-side", "--dry-run=server", "-k", str(folder))
    assert output.stderr == ""
    written = (folder / "croupier.yaml").read_text()
    assert len(output.stdout.splitlines()) == sum(1 for item in yaml.safe_load_all(written) if item)


def _all_but_the_agents_are_restricted(lab: Lab) -> None:
    """Checked by Pod Security admission of the API server."""
    lab.kubectl("create", "namespace", "strict")
    lab.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
    lab.kubectl("wait", "-n", "strict", "--for=create", "serviceaccount/default", "--timeout=60s")
    pods = [_pod(item) for item in of_kind(objects(), "Deployment")]
    asked = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
    lab.kubectl("create", "-n", "strict", "--dry-run=server", "-f", "-", stdin=asked)


def _pod(deployment: dict[str, Any]) -> dict[str, Any]:
    template = deployment["spec"]["template"]["spec"]
    spec = {word: value for word, value in template.items() if word != "serviceAccountName"}
    name = {"name": deployment["metadata"]["name"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": name, "spec": spec}


def _all_pods_are_ready(at: RealNodeEnv, accounts: set[str], version: str) -> None:
    """Wait for all pods; helm does not wait for all pods of a DaemonSet."""

    def ready() -> bool:
        found = at.get("pods", "-n", NAMESPACE)["items"]
        pods = [
            item for item in found if "deletionTimestamp" not in item["metadata"] and not _has_ended(item)
        ]
        statuses = [item["status"].get("containerStatuses") or [{"ready": False}] for item in pods]
        images = {item["spec"]["containers"][0]["image"].rpartition(":")[2] for item in pods}
        here = {item["spec"]["serviceAccountName"] for item in pods} == accounts and images == {version}
        return here and all(container["ready"] for status in statuses for container in status)

    until_blocking(ready, f"all pods to be ready with version {version}", TIMEOUT)


def _has_ended(pod: dict[str, Any]) -> bool:
    """The pod of `helm test`."""
    return bool(pod["status"]["phase"] == "Succeeded")


def _a_reservation_is_held(at: RealNodeEnv) -> None:
    at.kubectl("apply", "-f", "-", stdin=json.dumps(HELD))
    at.kubectl("wait", "reservation/held", "--for=jsonpath={.status.phase}=Reserved", "--timeout=300s")


def _state(at: RealNodeEnv) -> dict[str, Any]:
    """State that must not change during upgrades."""
    pod = at.get("pod", "-n", "team-a", "half")
    (container,) = pod["status"]["containerStatuses"]
    return {
        "container": (pod["metadata"]["uid"], container["containerID"], container["restartCount"]),
        "cards": pod["metadata"]["annotations"]["gpu.mps.io/allocation"],
        "phase": pod["status"]["phase"],
        "reservation": at.get("reservation", "held")["status"]["phase"],
        "pool": at.get("gpupool", "team-a")["metadata"]["uid"],
    }


def _a_second_croupier_is_refused(at: RealNodeEnv) -> None:
    output = at.reader.types(
        [Block(README, 1, "sh", "croupier lab up --detach --croupier CRD", "any, ends with 1")]
    )
    assert "Lab default has the chart of Croupier installed" in output
    assert [item.name for item in at.lab.record.processes if item.name in installation.PROCESS_NAMES] == []


def _doctor_reports_a_problem(at: RealNodeEnv) -> None:
    """The next installation fixes it."""
    webhook = "deployment/gpu-admission-webhook"
    at.kubectl("scale", webhook, "-n", NAMESPACE, "--replicas=0")
    at.kubectl("wait", "pod", "-n", NAMESPACE, "-l", "app=gpu-admission-webhook", "--for=delete")
    answer = at.asks("doctor", "-o", "json")
    assert answer.code == 1
    found = {item["where"]: item for item in answer.data["findings"]}
    assert found.keys() == {webhook, "croupier webhook"}
    assert found[webhook]["whatToDo"] == f"kubectl -n {NAMESPACE} scale {webhook} --replicas=1"
    assert found["croupier webhook"]["what"] == "the API server did not call it for a pod that requests cards"


def _goes_on(at: RealNodeEnv, running: dict[str, Any]) -> None:
    """Existing pods still run, and new pods can be created."""
    assert _state(at) == running
    used = "jsonpath={.status.capacity.used}"
    until_blocking(
        lambda: at.kubectl("get", "gpupool", "team-a", "-o", used) == "50",
        "the pool to count its pod",
        TIMEOUT,
    )
    pod = yaml.safe_load((EXAMPLES / "cards/half.yaml").read_text())
    pod["metadata"]["name"] = "another"
    at.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    at.kubectl("wait", "-n", "team-a", "pod/another", "--for=condition=Ready", "--timeout=300s")
    at.kubectl("delete", "-n", "team-a", "pod/another")


def _the_ledger_has(at: RealNodeEnv, holders: set[str]) -> None:
    def written() -> bool:
        output = json.dumps(at.get("nodereservation", realnode.NAME)["spec"])
        return all(item.split("/")[1] in output for item in holders)

    until_blocking(written, "the ledger to contain all holders", TIMEOUT)


def _nothing_is_left(at: RealNodeEnv) -> None:
    """CRDs and their objects remain; webhooks, policies, RBAC and run-time objects are removed."""
    kinds = at.kubectl("get", "crds", "-o", "name")
    assert kinds.count("gpu.deckhouse.io") == 3
    for kind in (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "clusterroles",
        "clusterrolebindings",
    ):
        named = at.kubectl("get", kind, "-o", "name").replace("croupier-lab-", "")  # the lab's own
        assert "croupier" not in named

    def left() -> set[str]:
        found = at.get("pods,secrets,leases,configmaps,services,serviceaccounts,roles", "-n", NAMESPACE)
        return {item["metadata"]["name"] for item in found["items"]}

    until_blocking(lambda: left() == {"kube-root-ca.crt", "default"}, "all objects to be removed", TIMEOUT)
    assert at.asks("uninstall", "--check").code == 0
    plain = {"name": "main", "image": "croupier.lab/busybox:1", "command": ["sleep", "3600"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": {"containers": [plain]}}
    at.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    at.kubectl("wait", "pod/plain", "--for=condition=Ready", "--timeout=300s")
