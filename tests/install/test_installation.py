"""The life of an installation on a real node: installed by the first page, used, upgraded, removed.

One story, because each chapter needs the one before it: what runs in the first must still run in the last.
What pages print is typed as it is printed, and what they say one sees is looked for.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.core import quantity
from croupier.lab import installation, own_image, realnode
from croupier.lab.installation import NAMESPACE
from croupier.lab.lab import Lab
from tests.docs import blocks
from tests.docs.blocks import Block
from tests.install import house
from tests.install.house import NEW, OLD, README, House, until
from tests.install.rendering import ROOT, objects, of_kind

SECONDS = 260

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
    "busy +20m +100m +Failed +BelowRequest: .* ask for at least 50m +200m",
    r"^busy +1/1 +Running +0 ",
    r"^default/worker +latency ",
    r"^worker +1/1 +Running +0 ",
    r"^web +1/1 +Running +0 ",
)
"""What the page of examples says one sees, in what was printed."""
CAME_WITH = "200m"
KEPT_BY_THE_LEDGER = "--set=settings.capacityManager=CRD"


@contextmanager
def chapter(title: str) -> Iterator[None]:
    """Where the time goes, for who runs this with -s."""
    begun = time.monotonic()
    yield
    print(f"{time.monotonic() - begun:6.1f} s  {title}")  # noqa: T201 (for who looks)


def test_the_guide_and_the_first_page_type_the_same():
    for where in ("installation up", "installation", "installation down"):
        first, guide = ([one.text.strip() for one in house.typed(page, where)] for page in (README, GUIDE))
        assert first
        assert guide == first


def test_the_life_of_an_installation(pytestconfig: pytest.Config, tmp_path: Path):
    if pytestconfig.getoption("--kubeconfig"):
        pytest.skip("raises a lab of its own, and --kubeconfig aims this run at another cluster")
    if reason := realnode.obstacle() or own_image.obstacle():
        pytest.skip(reason)
    begun = time.monotonic()
    with house.raised(tmp_path, between=_accepted) as at:
        print(f"{time.monotonic() - begun:6.1f} s  raised and installed")  # noqa: T201 (for who looks)
        _newcomer(at)
        _every_example(at)
        _life(at)
        _end(at)


def _accepted(lab: Lab) -> None:
    with chapter("manifests are accepted"):
        lab.kubectl("create", "namespace", NAMESPACE)
        _plain_manifests_are_accepted(lab)
        _all_but_the_agents_are_restricted(lab)


def _newcomer(at: House) -> None:
    with chapter("the newcomer's pod, and doctor"):
        _everybody_is_ready(at, ACCOUNTS, OLD)
        said = at.reader.types(house.typed(README))
        for line in _printed_by_the_pod():
            assert line in said, said
        assert "Nothing to complain of: versions, crds, processes, settings" in said
    with chapter("what the pages for operators say"):
        at.reader.types([one for page in (*GUIDES, OPERATIONS) for one in house.typed(page)])


def _printed_by_the_pod() -> list[str]:
    """What the first page says that the pod prints; what differs each time is left open there."""
    (shown,) = (one.text for one in blocks.blocks(README) if "CUDA_MPS_ACTIVE" in one.text)
    return [line.partition("...")[0] for line in shown.split()]


def _every_example(at: House) -> None:
    with chapter("every example"):
        said = at.reader.types(house.typed(EXAMPLES / "README.md"))
        for seen in SEEN:
            assert re.search(seen, said, re.MULTILINE), f"{seen}:\n{said}"
        rose, fell = re.findall(r"^\d+m$", said, re.MULTILINE)
        assert quantity.parse(rose) > quantity.parse(CAME_WITH)
        assert quantity.parse(fell) < quantity.parse(rose)


def _life(at: House) -> None:
    with chapter("a reservation is held"):
        _a_reservation_is_held(at)
        running = _state(at)
        house.add_version(at, NEW)
    with chapter("nobody deals beside it"):
        _nobody_deals_beside_it(at)
    with chapter("doctor names what is broken"):
        _doctor_names_what_is_broken(at)

    with chapter("upgrade"):
        at.install_by_hand(NEW, KEPT_BY_THE_LEDGER)
        _everybody_is_ready(at, {*ACCOUNTS, "croupier-ledger"}, NEW)
        _goes_on(at, running)
        _the_ledger_has(at, {"team-a/half", "default/held"})

    with chapter("downgrade"):
        at.install()
        _everybody_is_ready(at, ACCOUNTS, OLD)
        _goes_on(at, running)


def _end(at: House) -> None:
    with chapter("uninstall"):
        running = _state(at)
        at.reader.types(house.typed(OPERATIONS, "installation ends"))
        assert _state(at) == running
        _nothing_of_us_is_left(at)


def _plain_manifests_are_accepted(lab: Lab) -> None:
    folder = ROOT / "deployments/default"
    said = lab.kubectl("apply", "--server-side", "--dry-run=server", "-k", str(folder))
    assert said.stderr == ""
    written = (folder / "croupier.yaml").read_text()
    assert len(said.stdout.splitlines()) == sum(1 for one in yaml.safe_load_all(written) if one)


def _all_but_the_agents_are_restricted(lab: Lab) -> None:
    """Judged by the API server itself."""
    lab.kubectl("create", "namespace", "strict")
    lab.kubectl("label", "namespace", "strict", "pod-security.kubernetes.io/enforce=restricted")
    lab.kubectl("wait", "-n", "strict", "--for=create", "serviceaccount/default", "--timeout=60s")
    pods = [_pod(one) for one in of_kind(objects("--set=settings.highAvailability=true"), "Deployment")]
    asked = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
    lab.kubectl("create", "-n", "strict", "--dry-run=server", "-f", "-", stdin=asked)


def _pod(deployment: dict[str, Any]) -> dict[str, Any]:
    template = deployment["spec"]["template"]["spec"]
    spec = {word: value for word, value in template.items() if word != "serviceAccountName"}
    name = {"name": deployment["metadata"]["name"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": name, "spec": spec}


def _everybody_is_ready(at: House, accounts: set[str], version: str) -> None:
    """Helm waits for Deployments; of a DaemonSet it lets a tenth be missing, which may be all of it."""

    def ready() -> bool:
        found = at.get("pods", "-n", NAMESPACE)["items"]
        pods = [one for one in found if "deletionTimestamp" not in one["metadata"]]
        told = [one["status"].get("containerStatuses") or [{"ready": False}] for one in pods]
        images = {one["spec"]["containers"][0]["image"].rpartition(":")[2] for one in pods}
        here = {one["spec"]["serviceAccountName"] for one in pods} == accounts and images == {version}
        return here and all(container["ready"] for one in told for container in one)

    until(ready, f"everybody to be ready, as version {version}")


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


def _nobody_deals_beside_it(at: House) -> None:
    said = at.reader.types(
        [Block(README, 1, "sh", "croupier lab up --detach --croupier CRD", "any, ends with 1")]
    )
    assert "Lab default has Croupier installed" in said
    assert [one.name for one in at.lab.record.processes if one.name in installation.AS_PROCESSES] == []


def _doctor_names_what_is_broken(at: House) -> None:
    """The next installation mends it."""
    webhook = "deployment/gpu-admission-webhook"
    at.kubectl("scale", webhook, "-n", NAMESPACE, "--replicas=0")
    at.kubectl("wait", "pod", "-n", NAMESPACE, "-l", "app=gpu-admission-webhook", "--for=delete")
    answer = at.asks("doctor", "-o", "json")
    assert answer.code == 1
    found = {one["where"]: one for one in answer.data["findings"]}
    assert found.keys() == {webhook, "croupier webhook"}
    assert found[webhook]["whatToDo"] == f"kubectl -n {NAMESPACE} scale {webhook} --replicas=1"
    assert found["croupier webhook"]["what"] == "a pod that asks for cards was passed by it"


def _goes_on(at: House, running: dict[str, Any]) -> None:
    """What ran runs as before, and the installation still works."""
    assert _state(at) == running
    used = "jsonpath={.status.capacity.used}"
    until(lambda: at.kubectl("get", "gpupool", "team-a", "-o", used) == "50", "the pool to count its pod")
    pod = yaml.safe_load((EXAMPLES / "cards/half.yaml").read_text())
    pod["metadata"]["name"] = "another"
    at.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    at.kubectl("wait", "-n", "team-a", "pod/another", "--for=condition=Ready", "--timeout=300s")
    at.kubectl("delete", "-n", "team-a", "pod/another")


def _the_ledger_has(at: House, holders: set[str]) -> None:
    def written() -> bool:
        said = json.dumps(at.get("nodereservation", realnode.NAME)["spec"])
        return all(one.split("/")[1] in said for one in holders)

    until(written, "the ledger to have everybody who holds something")


def _nothing_of_us_is_left(at: House) -> None:
    """Kinds and their objects stay; what could refuse or hold up a pod is gone, and so is what we kept."""
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
        return {one["metadata"]["name"] for one in found["items"]}

    until(lambda: left() == {"kube-root-ca.crt", "default"}, "nothing of us to be left")
    assert at.asks("uninstall", "--check").code == 0
    plain = {"name": "main", "image": "croupier.lab/busybox:1", "command": ["sleep", "3600"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": {"containers": [plain]}}
    at.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    at.kubectl("wait", "pod/plain", "--for=condition=Ready", "--timeout=300s")
