"""The life of an installation on a real node: installed, used, upgraded, taken back, removed.

One story, because each chapter needs the one before it: what runs in the first must still run in the last.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.lab import own_image, realnode, testrun
from croupier.lab.pytest_plugin import RUN
from croupier.lab.testrun import TestRun
from tests.install import house
from tests.install.house import NAMESPACE, NEW, OLD, RELEASE, House, until
from tests.install.rendering import ROOT, objects, of_kind

EXAMPLES = ROOT / "examples/cards"
POOLED = f"{realnode.NAME}-0000-13-00-0"
ACCOUNTS = {
    "gpu-inventory-controller",
    "gpu-bootstrap-controller",
    "gpupool-controller",
    "croupier-cpu-limits",
    "gpu-admission-webhook",
    "croupier-extender",
    "croupier-node",
    "croupier-market",
}
HELD = {
    "apiVersion": "mps.nvidia.com/v1",
    "kind": "Reservation",
    "metadata": {"name": "held", "namespace": "default"},
    "spec": {"podKey": "default/later", "nodeName": realnode.NAME, "numCards": 1, "percentPerCard": 30},
}
KEPT_BY_THE_LEDGER = "--set=settings.capacityManager=CRD"


def test_the_life_of_an_installation(pytestconfig: pytest.Config, tmp_path: Path):
    if reason := realnode.obstacle() or own_image.obstacle():
        pytest.skip(reason)
    testrun.run(_life(pytestconfig.stash[RUN], tmp_path))


async def _life(run: TestRun, folder: Path) -> None:
    async with house.raised(run, folder) as at:
        at.kubectl("create", "namespace", NAMESPACE)
        _plain_manifests_are_accepted(at)
        _all_but_the_agents_are_restricted(at)

        at.install(OLD)
        _everybody_is_ready(at, ACCOUNTS, OLD)
        _half_a_card_runs_in_a_pool(at)
        _a_reservation_is_held(at)
        running = _state(at)

        at.install(NEW, KEPT_BY_THE_LEDGER)
        _everybody_is_ready(at, {*ACCOUNTS, "croupier-ledger"}, NEW)
        _goes_on(at, running)
        _the_ledger_has(at, {"team-a/half", "default/held"})

        at.install(OLD)
        _everybody_is_ready(at, ACCOUNTS, OLD)
        _goes_on(at, running)

        at.helm("uninstall", RELEASE, "--wait", f"--timeout={house.WITHIN}")
        assert _state(at) == running
        _nothing_of_us_is_in_the_way(at)


def _plain_manifests_are_accepted(at: House) -> None:
    folder = ROOT / "deployments/default"
    said = at.lab.kubectl("apply", "--server-side", "--dry-run=server", "-k", str(folder))
    assert said.stderr == ""
    written = (folder / "croupier.yaml").read_text()
    assert len(said.stdout.splitlines()) == sum(1 for one in yaml.safe_load_all(written) if one)


def _all_but_the_agents_are_restricted(at: House) -> None:
    """Judged by the API server itself."""
    at.kubectl("create", "namespace", "strict")
    at.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
    until(lambda: at.lab.kubectl("get", "-n", "strict", "sa", "default", check=False).stdout, "an account")
    for one in of_kind(objects("--set=settings.highAvailability=true"), "Deployment"):
        template = one["spec"]["template"]
        spec = {word: value for word, value in template["spec"].items() if word != "serviceAccountName"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any"}, "spec": spec}
        at.kubectl("create", "-n", "strict", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


def _everybody_is_ready(at: House, accounts: set[str], version: str) -> None:
    pods = [
        one
        for one in at.get("pods", "-n", NAMESPACE)["items"]
        if "deletionTimestamp" not in one["metadata"] and one["status"]["phase"] == "Running"
    ]
    assert {one["spec"]["serviceAccountName"] for one in pods} == accounts
    for one in pods:
        assert all(container["ready"] for container in one["status"]["containerStatuses"]), at.trouble()
        assert one["spec"]["containers"][0]["image"] == f"{own_image.TAG}:{version}"


def _half_a_card_runs_in_a_pool(at: House) -> None:
    """The example of examples/cards/README.md, by the scheduler that came with the installation."""
    at.kubectl("create", "namespace", "team-a")
    at.kubectl("apply", "-f", str(EXAMPLES / "pool.yaml"))
    until(lambda: at.lab.kubectl("get", "gpudevice", POOLED, check=False).stdout, "the card")
    at.kubectl("annotate", "gpudevice", POOLED, "gpu.deckhouse.io/assignment=team-a")
    offered = r"jsonpath={.status.allocatable.gpu\.deckhouse\.io/team-a}"
    until(lambda: at.kubectl("get", "node", realnode.NAME, "-o", offered) == "100", "what the pool offers")
    pod = yaml.safe_load((EXAMPLES / "half.yaml").read_text())
    pod["spec"]["schedulerName"] = "croupier-scheduler"
    at.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    at.kubectl("wait", "-n", "team-a", "pod/half", "--for=condition=Ready", "--timeout=300s")
    said = until(lambda: at.kubectl("logs", "-n", "team-a", "half"), "what the pod was given")
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50" in said


def _a_reservation_is_held(at: House) -> None:
    at.kubectl("apply", "-f", "-", stdin=json.dumps(HELD))
    at.kubectl("wait", "reservation/held", "--for=jsonpath={.status.phase}=Reserved", "--timeout=300s")


def _state(at: House) -> dict[str, Any]:
    """What must not change, whatever happens to us."""
    pod = at.get("pod", "-n", "team-a", "half")
    (container,) = pod["status"]["containerStatuses"]
    return {
        "container": (pod["metadata"]["uid"], container["containerID"], container["restartCount"]),
        "cards": pod["metadata"]["annotations"]["gpu.mps.io/allocation"],
        "phase": pod["status"]["phase"],
        "reservation": at.get("reservation", "held")["status"]["phase"],
        "pool": at.get("gpupool", "team-a")["metadata"]["uid"],
    }


def _goes_on(at: House, running: dict[str, Any]) -> None:
    """What ran runs as before, and the installation still works."""
    assert _state(at) == running
    used = "jsonpath={.status.capacity.used}"
    until(lambda: at.kubectl("get", "gpupool", "team-a", "-o", used) == "50", "the pool to count its pod")
    pod = yaml.safe_load((EXAMPLES / "half.yaml").read_text())
    pod["metadata"]["name"] = "another"
    pod["spec"]["schedulerName"] = "croupier-scheduler"
    at.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    at.kubectl("wait", "-n", "team-a", "pod/another", "--for=condition=Ready", "--timeout=300s")
    at.kubectl("delete", "-n", "team-a", "pod/another")


def _the_ledger_has(at: House, holders: set[str]) -> None:
    def written() -> bool:
        said = json.dumps(at.get("nodereservation", realnode.NAME)["spec"])
        return all(one.split("/")[1] in said for one in holders)

    until(written, "the ledger to have everybody who holds something")


def _nothing_of_us_is_in_the_way(at: House) -> None:
    """Kinds and their objects stay; whatever could refuse or hold up a pod is gone."""
    kinds = at.kubectl("get", "crds", "-o", "name")
    assert kinds.count("gpu.deckhouse.io") == 3
    for kind in (
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
    ):
        assert "croupier" not in at.kubectl("get", kind, "-o", "name")
    for kind in ("clusterroles", "clusterrolebindings"):
        named = at.kubectl("get", kind, "-o", "name").replace("croupier-lab-", "")  # the lab's own
        assert "croupier" not in named
    until(lambda: at.get("pods", "-n", NAMESPACE)["items"] == [], "our pods to be gone")
    plain = {"name": "main", "image": "croupier.lab/busybox:1", "command": ["sleep", "3600"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": {"containers": [plain]}}
    at.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    at.kubectl("wait", "pod/plain", "--for=condition=Ready", "--timeout=300s")
