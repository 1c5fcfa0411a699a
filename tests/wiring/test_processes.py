"""The processes as started from the command line, with the real kube-scheduler: killed, migrated, refused."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from croupier.capacity.manager import CapacityManagerKind
from croupier_lab import api_proxy, croupier_processes, fleet, nodes, process
from croupier_lab.controlplane import COMPONENTS
from croupier_lab.lab import Lab
from croupier_lab.progress import LogProgress
from croupier_lab.shared_cluster import PODS, ServedKind
from tests.cli import command
from tests.polling import until
from tests.wiring import first_lines

SECONDS = 110

MANIFESTS = Path(__file__).resolve().parents[2] / "deployments/mps-dra"
LOG_OPTIONS = LogProgress(lambda _: None)
EVENTS = ServedKind("", "v1", "events")
LEDGERS = ServedKind("mps.nvidia.com", "v1", "nodereservations")
RESERVATIONS = ServedKind("mps.nvidia.com", "v1", "reservations")
MISSION = """
apiVersion: mps.nvidia.com/v1
kind: Reservation
metadata: {name: example-reservation, namespace: default}
spec: {podKey: default/my-pod, nodeName: node-1, numCards: 2, percentPerCard: 50}
"""


class ProcessEnv:
    """A lab with two nodes of two cards."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    async def deals(self, book: CapacityManagerKind, kubeconfigs: Mapping[str, Path] | None = None) -> None:
        await croupier_processes.start_croupier(self.lab, book, LOG_OPTIONS, kubeconfigs=kubeconfigs)

    def account(self, name: str) -> Path:
        """A kubeconfig with the service account of that process."""
        groups = [
            "system:serviceaccounts",
            f"system:serviceaccounts:{croupier_processes.NAMESPACE}",
            "system:authenticated",
        ]
        said = yaml.safe_load(self.lab.kubeconfig.read_text())
        for user in said["users"]:
            user["user"] |= {
                "as": f"system:serviceaccount:{croupier_processes.NAMESPACE}:{name}",
                "as-groups": groups,
            }
        path = self.lab.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(said))
        return path

    def ask(self, name: str, *, cards: int = 1, ratio: int = 100) -> None:
        annotations = {"gpu.mps.io/cards": str(cards), "gpu.mps.io/ratio": str(ratio)}
        limits = {"gpu.mps.io/ledger": "1", "gpu.mps.io/percent": str(cards * ratio)}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"containers": [{"name": "main", "image": "any", "resources": {"limits": limits}}]},
        }
        self.lab.kubectl("apply", "-f", "-", stdin=json.dumps(pod))

    def all(self, kind: ServedKind) -> dict[str, Any]:
        """The objects of a kind by name. Through a proxy: a test asks until they change."""
        namespace = "" if kind == LEDGERS else "default"
        listed = api_proxy.connect(self.lab.cluster).items(kind.path(namespace))
        return {item["metadata"]["name"]: item for item in listed}

    def cards_of(self, pod: str) -> list[tuple[str, int]]:
        """The cards of a bound pod; empty for a pending pod."""
        written = self.all(PODS)[pod]["metadata"]["annotations"].get("gpu.mps.io/allocation", "[]")
        return [(entry["card"], entry["percent"]) for entry in json.loads(written)]

    def phase(self, reservation: str) -> str:
        return str(self.all(RESERVATIONS)[reservation].get("status", {}).get("phase", ""))

    def reason(self, reservation: str) -> str:
        """The reason of its condition Reserved; PodBound: a pod that ends now ends the Reservation too."""
        conditions = self.all(RESERVATIONS)[reservation].get("status", {}).get("conditions", ())
        return next((str(item["reason"]) for item in conditions if item["type"] == "Reserved"), "")

    def shares(self) -> dict[str, int]:
        """The used percentage of every card, from the annotations of the pods."""
        taken: dict[str, int] = {}
        for pod in self.all(PODS):
            for card, percent in self.cards_of(pod):
                taken[card] = taken.get(card, 0) + percent
        return taken


@pytest_asyncio.fixture
async def env(private_lab: Callable[..., Any]) -> ProcessEnv:
    lab = await private_lab(parts=COMPONENTS)
    await fleet.create(lab, nodes.fleet(2, cards="H100:2", named=[]), LOG_OPTIONS)
    lab.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    return ProcessEnv(lab)


async def test_the_in_memory_manager_survives_a_kill_and_a_migration_in_both_directions(env):
    await env.deals("InMemory")
    env.lab.kubectl("apply", "-f", "-", stdin=MISSION)
    await until(lambda: env.phase("example-reservation") == "Reserved", "the Reservation to be held")
    env.ask("first", ratio=30)
    env.ask("second", cards=2, ratio=50)
    await until(lambda: env.cards_of("first") and env.cards_of("second"), "both pods to be placed")
    cards = env.cards_of("second")
    assert env.all(LEDGERS) == {}

    env.lab.kill(croupier_processes.EXTENDER)
    env.ask("third", cards=2, ratio=20)
    await env.deals("InMemory")
    await until(lambda: env.cards_of("third"), "the third pod to be placed by the next capacity manager")
    assert env.cards_of("second") == cards

    await env.deals("CRD")
    await until(lambda: len(env.all(LEDGERS)) == 2, "the ledgers to be written")
    env.ask("my-pod", cards=2, ratio=50)
    await until(lambda: env.cards_of("my-pod"), "the reserved pod to get its cards")
    held = {
        (card["id"], key.split("/")[1]): share
        for ledger in env.all(LEDGERS).values()
        for card in ledger["spec"]["cards"]
        for key, share in card.get("holders", {}).items()
    }
    assert held == {
        (card, pod): share
        for pod in ("first", "second", "third", "my-pod")
        for card, share in env.cards_of(pod)
    }
    assert {card for card, _ in env.cards_of("my-pod")} == {"node-1-gpu-0", "node-1-gpu-1"}

    await env.deals("InMemory")
    assert env.all(LEDGERS) == {}
    env.ask("too-much", cards=2, ratio=60)
    await until(lambda: _refusal(env, "too-much"), "the scheduler to say why")
    env.lab.kubectl("delete", "pod", "first", "second", "--wait=true")
    await until(lambda: env.cards_of("too-much"), "freed cards to be given again", within=60)
    assert all(share <= 100 for share in env.shares().values())


@pytest.mark.parametrize("book", ["InMemory", "CRD"])
async def test_the_service_accounts_of_the_manifests_have_all_permissions(env, book):
    for folder in (MANIFESTS.parent / "namespace", MANIFESTS):
        env.lab.kubectl("apply", "-k", str(folder))
    accounts = {name: env.account(name) for name in (croupier_processes.EXTENDER, croupier_processes.MANAGER)}
    await env.deals(book, accounts)

    env.lab.kubectl("apply", "-f", "-", stdin=MISSION)
    await until(lambda: env.phase("example-reservation") == "Reserved", "the Reservation to be held")
    env.ask("my-pod", cards=2, ratio=50)
    env.ask("whole", cards=1)
    await until(lambda: env.cards_of("my-pod") and env.cards_of("whole"), "both pods to be placed")
    await until(lambda: env.reason("example-reservation") == "PodBound", "the binding to be seen")
    env.lab.kubectl("delete", "pod", "my-pod", "--wait=true")
    await until(lambda: env.phase("example-reservation") == "Released", "the end of its pod to be seen")
    env.lab.kubectl("delete", "rsv", "example-reservation", "--timeout=30s")

    logs = {name: env.lab.logs / f"{name}.log" for name in accounts}
    said = {name: log.read_text() for name, log in logs.items() if log.exists()}
    assert "forbidden" not in "".join(said.values()).lower()
    assert croupier_processes.EXTENDER in said
    for name, text in said.items():
        first_lines.check(text, "manager" if name == croupier_processes.MANAGER else "extender", book)


async def test_a_process_with_another_capacity_manager_refuses_to_start(env):
    """It says why and ends; the running processes and what they hold stay."""
    await env.deals("InMemory")
    env.ask("first", ratio=30)
    await until(lambda: env.cards_of("first"), "the pod to be placed")
    crd = "--capacity-manager=CRD"
    await _is_refused(env, "runs the in-memory capacity manager", "manager", "--controllers=ledger", crd)
    await _is_refused(env, "runs the in-memory capacity manager", "extender", "--listen=127.0.0.1:0", crd)
    env.ask("second", ratio=30)
    await until(lambda: env.cards_of("second"), "the running extender to place another pod")

    await env.deals("CRD")
    await until(lambda: len(env.all(LEDGERS)) == 2, "the ledgers to be written")
    await _is_refused(env, "runs the CRD capacity manager", "extender", "--listen=127.0.0.1:0")
    env.ask("third", ratio=30)
    await until(lambda: env.cards_of("third"), "the running extender to place a third pod")


async def _is_refused(env: ProcessEnv, message: str, *process_options: str) -> None:
    def ledgers() -> set[str]:
        return {ledger["metadata"]["uid"] for ledger in env.all(LEDGERS).values()}

    before = ledgers()
    config = {"KUBECONFIG": str(env.lab.kubeconfig), "PATH": ""}
    ended = await asyncio.to_thread(
        command.run, [*process_options, "--health=127.0.0.1:0"], env=config, timeout=60
    )

    assert ended.code == 1
    assert message in ended.err
    assert process.alive(env.lab.process(croupier_processes.EXTENDER))
    assert ledgers() == before


def _refusal(env: ProcessEnv, pod: str) -> bool:
    return any(
        event["involvedObject"]["name"] == pod
        and event["reason"] == "FailedScheduling"
        and "needs 2 cards with 60 % free but has" in event["message"]
        for event in env.all(EVENTS).values()
    )
