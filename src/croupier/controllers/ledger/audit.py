"""The audit: at start and every minute, compares the ledgers with the pods and the reports of nodes.

A divergence is checked again after some seconds, because a pod that has just ended or a bind in flight look
like errors. If it persists, it is verified against the API server. A divergence with a safe repair is
repaired; the others are reported as metric, as Event on the Node and in the NodeReservation's status.

A pod that was bound without the extender is adopted when the cache shows its binding, without waiting for
the next audit: until then its cards count as free. This cannot mistake a bind in flight. The extender holds
the cards before it sends the Binding, and the repair is decided on the newest ledger when it is written.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from croupier.api import convert_pod
from croupier.api.core_v1 import Pod
from croupier.api.kinds import NODES, PODS, RESERVATIONS
from croupier.capacity.cluster_view import ClusterView, brief_view
from croupier.capacity.manager import CapacityManager, UnknownNode
from croupier.controllers.ledger.audit_findings import AuditFindings
from croupier.controllers.ledger.audit_metrics import AuditMetrics
from croupier.core.claims import audit
from croupier.core.claims.audit import AuditInputs, Divergence
from croupier.core.ledger import holder as holder_names
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.pod_view import PodView
from croupier.kube.cache.store import ObjectChange
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.concurrency import wait_or_stop
from croupier.kube.client.errors import KubeError, NotFound
from croupier.kube.controller import events
from croupier.kube.controller.controller_run import ALWAYS_LEADER, LeaderCheck
from croupier.kube.controller.events import EventRecorder

INTERVAL: Final = 60.0
RECHECK_DELAY: Final = 5.0
"""Seconds after which a divergence is checked again."""
ADOPT_DELAY: Final = 0.2
"""Seconds after which a newly bound pod without a holder is adopted. The cache of ledgers may be behind the
cache of pods; without the delay, binds of the extender would cost reads and conflicts."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AuditOptions:
    every: float = INTERVAL
    recheck_delay: float = RECHECK_DELAY
    clock: Clock = field(default_factory=SystemClock)
    chance: Callable[[], float] = random.random
    metrics: AuditMetrics = field(default_factory=lambda: AuditMetrics(CollectorRegistry()))


class Audit:
    """The caller fences `api` if there is leader election. `notes` are the findings without a safe repair."""

    def __init__(
        self,
        view: ClusterView,
        api: Client,
        *,
        manager: CapacityManager,
        recorder: EventRecorder,
        settings: AuditOptions | None = None,
    ) -> None:
        self._view = view
        self._api = api
        self._manager = manager
        self._recorder = recorder
        self._settings = settings or AuditOptions()
        self.findings = AuditFindings()
        self._bound: dict[str, set[str]] = {}
        """By node: `namespace/name` of pods whose binding was just seen."""
        self._wake = asyncio.Event()

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        unsubscribe = self._view.sources.pods.store.subscribe(self._pod_changed)
        try:
            async with asyncio.TaskGroup() as tasks:
                adopting = tasks.create_task(self._adopt_bound_pods(leader_check))
                await self._run_periodically(stop, leader_check)
                adopting.cancel()
        finally:
            unsubscribe()

    async def _run_periodically(self, stop: asyncio.Event, leader_check: LeaderCheck) -> None:
        await wait_or_stop(stop, self._view.complete())
        while not stop.is_set() and leader_check.held():
            try:
                await self.run_once()
            except KubeError as error:
                log.warning(f"the audit failed and is repeated: {error}", error=str(error))
            pause = self._settings.every * (0.9 + 0.2 * self._settings.chance())
            await wait_or_stop(stop, self._settings.clock.sleep(pause))

    async def run_once(self) -> None:
        """Check every node once, and nodes with divergences twice."""
        suspects = {}
        for node in tuple(self._manager.nodes()):
            if (divergences := self.compare(node)) or self.findings.of(node):
                suspects[node] = divergences
            elif (held := self._manager.ledger(node)) is not None:
                self.findings.write(held)
            await asyncio.sleep(0)  # yield to the event loop between nodes
        if any(suspects.values()):
            await self._settings.clock.sleep(self._settings.recheck_delay)
        for node, divergences in suspects.items():
            await self._verify(node, divergences)
        self.findings.keep_only(self._manager.nodes())
        left = (finding.kind for findings in self.findings.every().values() for finding in findings)
        self._settings.metrics.left(Counter(left))

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        pod = change.new
        if pod is None or not pod.spec.node_name or (change.old is not None and change.old.spec.node_name):
            return
        self._bound.setdefault(pod.spec.node_name, set()).add(pod.metadata.key)
        self._wake.set()

    async def _adopt_bound_pods(self, leader_check: LeaderCheck) -> None:
        """Run until cancelled. A pod that could not be adopted is left to the next audit."""
        await self._view.complete()
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._settings.clock.sleep(ADOPT_DELAY)
            if not leader_check.held():
                return
            bound, self._bound = self._bound, {}
            for node, keys in bound.items():
                try:
                    await self._adopt(node, keys)
                except KubeError as error:
                    log.warning(
                        f"pods of node {node} were not adopted and are tried again",
                        node=node,
                        error=str(error),
                    )

    async def _adopt(self, node: str, keys: Iterable[str]) -> None:
        """Adopt those of the pods that request cards, hold none, and are still bound to the node.

        Pods of Reservations are left to the audit, because the cached Reservation may be outdated.
        """
        held = self._manager.ledger(node)
        if held is None:
            return  # all pods of the node are counted when its ledger is opened
        known = held.holders() | {hold.pod for hold in self._view.reservation_holds(node)}
        pods = (pod for key in sorted(keys) if (pod := self._view.pod(key)) is not None)
        unknown = (pod for pod in pods if known.isdisjoint({pod.metadata.key, brief_view(pod).holder}))
        asking = [pod.metadata.key for pod in unknown if convert_pod.view(pod).wants]
        if asking:
            world = AuditInputs(held, self._view.report(node))
            world = audit.with_pods(world, {key: await self._pod(key) for key in asking})
            await self._repair_and_report(node, audit.ghosts(world))

    def compare(self, node: str) -> tuple[Divergence, ...]:
        """The divergences of a node according to the caches."""
        held = self._manager.ledger(node)
        return () if held is None else audit.compare(self._view.world(held))

    async def confirmed(self, node: str, before: Iterable[Divergence]) -> tuple[Divergence, ...]:
        """The divergences that still exist, verified against the API server."""
        held = self._manager.ledger(node)
        if held is None:
            return ()
        world = self._view.world(held)
        seen = audit.confirmed(before, audit.compare(world))
        return audit.confirmed(seen, audit.compare(await self._live(world, seen))) if seen else ()

    async def repair(self, node: str, seen: Iterable[Divergence]) -> list[Divergence]:
        """Repair the divergences with a safe repair; return those that were repaired."""
        repairable = [divergence for divergence in seen if divergence.repair is not None]
        done: list[Divergence] = []

        def change(newest: Ledger) -> Ledger:
            done.clear()  # the change may be applied again to a newer ledger
            for divergence in repairable:
                repair = divergence.repair
                if repair is not None and (repaired := audit.apply(newest, repair)) != newest:
                    newest = repaired
                    done.append(divergence)
            return newest

        if repairable:
            with suppress(UnknownNode):
                await self._manager.amend(node, change)
        return done

    async def _verify(self, node: str, before: Iterable[Divergence]) -> None:
        held = self._manager.ledger(node)
        if held is None:
            return
        confirmed = await self.confirmed(node, before)
        await self._repair_and_report(node, confirmed)
        self._report_unrepaired(held, [divergence for divergence in confirmed if divergence.repair is None])

    async def _repair_and_report(self, node: str, found: Iterable[Divergence]) -> None:
        for divergence in await self.repair(node, found):
            self._settings.metrics.repaired(divergence.finding.kind)
            self._report(node, divergence, f"{divergence.finding.message}; repaired")

    async def _live(self, world: AuditInputs, seen: Sequence[Divergence]) -> AuditInputs:
        """`world` with the affected pods and Reservations read from the API server."""
        holders = {divergence.finding.holder for divergence in seen if divergence.finding.holder}
        keys = set(map(holder_names.pod_key, holders))
        world = audit.with_pods(world, {key: await self._pod(key) for key in sorted(keys)})
        kept = {name for holder in holders if (name := await self._kept(world.ledger, holder))}
        return replace(world, reservations=frozenset({*world.reservations, *kept}))

    async def _pod(self, key: str) -> PodView | None:
        namespace, _, name = key.partition("/")
        try:
            return convert_pod.view(await self._api.get(PODS, name, namespace=namespace))
        except NotFound:
            return None

    async def _kept(self, held: Ledger, holder: str) -> str | None:
        """The Reservation of a holder, if there is one."""
        namespace, name = holder.partition("/")[0], held.reservations.get(holder)
        if name is None:
            return None
        try:
            return (await self._api.get(RESERVATIONS, name, namespace=namespace)).metadata.key
        except NotFound:
            return None

    def _report_unrepaired(self, held: Ledger, left: Sequence[Divergence]) -> None:
        node = held.node
        known = {(finding.kind, finding.card, finding.holder) for finding in self.findings.of(node)}
        for divergence in left:
            if divergence.identity not in known:
                self._report(node, divergence, divergence.finding.message)
        self.findings.write(held, (divergence.finding for divergence in left))

    def _report(self, node: str, divergence: Divergence, note: str) -> None:
        kind = divergence.finding.kind
        log.warning(note, finding=kind, node=node)
        if (node_object := self._view.node(node)) is not None:
            about = events.reference_to(NODES, node_object)
            note = f"{kind}: {note}"
            self._recorder.record(about, "GPULedgerDivergence", note, action="Audit", type="Warning")
