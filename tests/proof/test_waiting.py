"""Pods that can never be bound and dry runs do not keep others waiting, with the real kube-scheduler."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from croupier.api import kinds
from croupier.kube.client import api_client, config
from croupier.kube.client.errors import Invalid
from croupier.kube.controller.events import EventRecorder
from croupier_lab import process, shared_cluster
from croupier_lab.controlplane import COMPONENTS
from tests.extender import env as tables
from tests.extender.env import ExtenderEnv
from tests.polling import until, until_async
from tests.proof import history, manager_env
from tests.proof.facts import HolderAdded
from tests.proof.history import History
from tests.proof.manager_env import LedgerManagerEnv

SECONDS = 20

CARDS = 2
REFUSED = "refused"
REFUSED_PODS = 20
MAX_ATTEMPTS = 3 * REFUSED_PODS
"""Refused Bindings until all others are placed."""
DRY_RUNS = 60
HIGHEST = "system-node-critical"
"""The PriorityClass of Kubernetes with the highest value."""


@dataclass
class WaitingEnv:
    """One node with two cards, its ledger, the controllers, kube-scheduler and the extender."""

    table: ExtenderEnv
    recording: History
    node: str

    async def refuse_bindings(self) -> None:
        """The API server refuses every Binding of pods whose name starts with `refused-`."""
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods/binding"],
        }
        check = {
            "expression": f"!object.metadata.name.startsWith('{REFUSED}-')",
            "message": "this pod is never bound",
        }
        policy = {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [check],
            "failurePolicy": "Fail",
        }
        api, meta = self.table.api, {"name": "refuse-bindings"}
        await api.create(kinds.ADMISSION_POLICIES, {"metadata": meta, "spec": policy})
        active = {"policyName": "refuse-bindings", "validationActions": ["Deny"]}
        await api.create(kinds.ADMISSION_POLICY_BINDINGS, {"metadata": meta, "spec": active})
        await self.table.pod(f"{REFUSED}-probe", scheduler="none")

        async def in_force() -> bool:
            try:
                await self.dry_run_binding(f"{REFUSED}-probe")
            except Invalid:
                return True
            return False

        await until_async(in_force, "the policy to be in force")

    async def dry_run_binding(self, pod: str) -> None:
        body = {"metadata": {"name": pod}, "target": {"apiVersion": "v1", "kind": "Node", "name": self.node}}
        await self.table.api.create(
            kinds.PODS, body, namespace=self.table.namespace, name=pod, subresource="binding", dry_run=True
        )

    def added(self) -> list[str]:
        """Every holder that the ledger ever had, in order."""
        return [fact.holder for fact in self.recording.facts() if isinstance(fact, HolderAdded)]

    def refused_attempts(self) -> int:
        """How often the cards were held for a Binding that was refused, before the last other pod got its."""
        added = self.added()
        while added and f"/{REFUSED}-" in added[-1]:
            added.pop()
        return sum(f"/{REFUSED}-" in holder for holder in added)


@contextlib.asynccontextmanager
async def waiting_env(private_lab, folder) -> AsyncIterator[WaitingEnv]:
    lab = await private_lab(crds=True, parts=COMPONENTS)
    namespace = shared_cluster.create_namespace(lab.cluster, "waiting")
    scheduler = tables.start_scheduler(lab, folder)
    try:
        async with (
            api_client.connect(config.load(lab.kubeconfig)) as api,
            history.record(api, pods=True) as recording,
            manager_env.running(LedgerManagerEnv(api, EventRecorder(api, "proof"))) as house,
        ):
            table = ExtenderEnv(api, house.manager, namespace, scheduler.port)
            node = await table.node("node-1", cards=CARDS, known=False)
            await until(lambda: house.manager.ledger(node) is not None, "the ledger")
            async with table.extender():
                yield WaitingEnv(table, recording, node)
    finally:
        await process.stop(scheduler.process)


async def test_pods_whose_binding_is_always_refused_do_not_delay_others(private_lab, tmp_path, tell):
    """Cards become free, and pods of the highest priority that can never be bound are tried first."""
    async with waiting_env(private_lab, tmp_path) as world:
        table = world.table
        await world.refuse_bindings()
        await table.pod("filler", gpus=CARDS, priorityClassName=HIGHEST)
        await table.placed("filler")
        for number in range(REFUSED_PODS):
            await table.pod(f"{REFUSED}-{number}", gpus=CARDS, priorityClassName=HIGHEST)
        low = [f"low-{number}" for number in range(2 * CARDS)]
        for name in low:
            await table.pod(name, cards="1", ratio="50")
            await table.sentence(name, "but has 0")

        await table.delete("filler")
        for name in low:
            await table.placed(name)

        await world.recording.complete()
        attempts = world.refused_attempts()
        tell(f"{attempts} refused Bindings of {REFUSED_PODS} pods before the last of {len(low)} pods")
        assert attempts <= MAX_ATTEMPTS
        for name in low:
            await table.delete(name)
        await until(lambda: f"/{REFUSED}-" in world.added()[-1], "the cards to be held for a refused Binding")
        await until(lambda: not table.holders(world.node), "that hold to be released, long before its TTL")
        await world.recording.complete()
        assert world.recording.faults() == []


async def test_dry_runs_hold_nothing(private_lab, tmp_path):
    async with waiting_env(private_lab, tmp_path) as world:
        table = world.table
        probe = await table.pod("probe", gpus=1, scheduler="none")
        for number in range(DRY_RUNS):
            pod = tables.manifest(f"dry-{number}", gpus=CARDS)
            await table.api.create(kinds.PODS, pod, namespace=table.namespace, dry_run=True)
            await world.dry_run_binding("probe")
            spec = {
                "podKey": probe.metadata.key,
                "nodeName": world.node,
                "numCards": 1,
                "percentPerCard": 100,
            }
            claim = {"metadata": {"name": f"dry-{number}"}, "spec": spec}
            await table.api.create(kinds.RESERVATIONS, claim, namespace=table.namespace, dry_run=True)

        for number in range(CARDS):
            await table.pod(f"filler-{number}", gpus=1)
        placed = [await table.placed(f"filler-{number}") for number in range(CARDS)]

        assert len({part.card for _, grant in placed for part in grant}) == CARDS
        await world.recording.complete()
        assert world.recording.faults() == []
        added = [holder.split("/")[1] for holder in world.added()]
        assert sorted(added) == [f"filler-{number}" for number in range(CARDS)], "nothing else was ever held"
