"""The market agent of one node: every second it reads CPU counters, runs a tick, and writes desired limits.

It does not decide (core/market does) nor enforce (the PodAllocation controller does). Its state may be lost
at any time. Its heartbeat is a Lease that it renews after a complete round, and only if the counters can be
read: an agent without counters sends no heartbeat, so that the original limits are restored.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from croupier.api import market_report as wire
from croupier.api.core_v1 import Pod, micro_time
from croupier.api.kinds import LEASES, POD_ALLOCATIONS, PODS
from croupier.api.market_report import MarketReport
from croupier.core.market import policy as policies
from croupier.core.market import ticking, units
from croupier.core.market.estimation import CPUSample
from croupier.core.market.model import MarketState, NodeObservation, SetLimit, TickResult
from croupier.core.market.policy import MarketPolicy
from croupier.core.market.units import SECOND
from croupier.core.model.agent_liveness import MARKET_AGENT_TIMEOUT
from croupier.kube.cache import store
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import AlreadyExists, KubeError, NotFound
from croupier.node.market import node_view
from croupier.node.market import non_participants as market_outside
from croupier.node.market import report as market_report
from croupier.node.market.cgroup import CgroupTree
from croupier.node.market.cgroup_paths import ContainerCgroup
from croupier.node.market.metrics import MarketMetrics
from croupier.node.market.node_view import BY_HAND, MarketNodeView, MarketStores
from croupier.node.market.non_participants import NonParticipants

FIELD_MANAGER: Final = "croupier-market"
"""The field manager of the limits."""
WRITE_TIMEOUT: Final = 10.0
"""Timeout of a write in seconds; a failed write is decided again."""
RESTORED: Final = "original limit restored: the pod no longer takes part"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MarketAgentOptions:
    node: str
    namespace: str
    """The namespace of the Lease."""
    policy: MarketPolicy = policies.DEFAULT
    dry_run: bool = False
    every: float = 1.0
    """Seconds between rounds."""
    heartbeat: float = 10.0
    """Seconds between heartbeats."""
    clock: Clock = field(default_factory=SystemClock)
    metrics: MarketMetrics = field(default_factory=lambda: MarketMetrics(CollectorRegistry()))


class MarketAgent:
    def __init__(
        self, sources: MarketStores, tree: CgroupTree, api: Client, settings: MarketAgentOptions
    ) -> None:
        self._view = MarketNodeView(settings.node, sources)
        self._tree = tree
        self._api = api
        self._settings = settings
        self._state = MarketState()
        self._outside = NonParticipants()
        self._pretended: dict[str, int] = {}
        self._last_heartbeat: float | None = None
        self.report: MarketReport | None = None
        """The report of the last round."""

    async def run(self, stop: asyncio.Event) -> None:
        with store.open_indexes(*self._view.indexes):
            while not stop.is_set():
                began = self._settings.clock.monotonic()
                await self.round()
                await self._rest(began, stop)

    async def _rest(self, began: float, stop: asyncio.Event) -> None:
        passed = self._settings.clock.monotonic() - began
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._settings.every - passed)):
                await stop.wait()

    async def round(self) -> TickResult | None:
        """Read, decide and write; then send a heartbeat if one is due."""
        began = self._settings.clock.monotonic()
        seen = self._observed(*await asyncio.to_thread(self._read, self._view.places()))
        if seen is None:
            return None
        policy = self._settings.policy
        done = ticking.tick(self._state, seen, policy, self._now())
        self._state = done.state
        await self._carry_out([*_moves(done), *self._returns()])
        self.report = self._told(seen, done)
        self._settings.metrics.ticked(self.report, self._settings.clock.monotonic() - began)
        if self._tree.problem() is None:
            await self._live(self.report)
        return done

    def _now(self) -> int:
        return int(self._settings.clock.monotonic() * SECOND)

    def _read(
        self, places: dict[tuple[str, str], ContainerCgroup]
    ) -> tuple[int | None, dict[str, dict[str, CPUSample | None]]]:
        """Runs in a thread: the usage of the whole node, and the counters of every managed container."""
        readings: dict[str, dict[str, CPUSample | None]] = {}
        for (uid, container), place in places.items():
            readings.setdefault(uid, {})[container] = self._tree.sample(place, self._now)
        return self._tree.usage(), readings

    def _observed(
        self, everything: int | None, readings: dict[str, dict[str, CPUSample | None]]
    ) -> NodeObservation | None:
        samples = [sample for pod in readings.values() for sample in pod.values() if sample is not None]
        self._outside = market_outside.update(self._outside, everything, samples, self._now())
        return self._view.observe(readings, outside=self._outside.usage, pretended=self._pretended)

    def _returns(self) -> list[SetLimit]:
        """Restore the original limits of pods that no longer take part."""
        moves = []
        for pod in self._view.left():
            ours, original = self._view.ours(pod), self._view.original(pod)
            before = original if ours is None else node_view.desired(ours)
            if before != original:
                moves.append(SetLimit(pod.metadata.key, pod.metadata.uid, before, original, RESTORED))
        return moves

    async def _carry_out(self, moves: Sequence[SetLimit]) -> None:
        """Decreases first. (A raise is only decided if the CPU is free already.)"""
        if self._settings.dry_run:
            self._pretend(moves)
            return
        pods = {pod.metadata.uid: pod for pod in (*self._view.managed(), *self._view.left())}
        down, up = _sorted(moves)
        for group in (down, up):
            await asyncio.gather(*(self._write(move, pods[move.uid]) for move in group if move.uid in pods))

    def _pretend(self, moves: Iterable[SetLimit]) -> None:
        for move in moves:
            if self._pretended.get(move.uid) != move.limit:
                log.info(
                    f"pod {move.key} would get the CPU limit {units.text(move.limit)}",
                    pod=move.key,
                    limit=units.text(move.limit),
                    reason=move.sentence,
                )
                self._settings.metrics.moved(move.before, move.limit)
                self._pretended[move.uid] = move.limit
        here = {pod.metadata.uid for pod in (*self._view.managed(), *self._view.left())}
        self._pretended = {uid: limit for uid, limit in self._pretended.items() if uid in here}

    async def _write(self, move: SetLimit, pod: Pod) -> None:
        try:
            async with asyncio.timeout(WRITE_TIMEOUT):
                await self._send(move, pod)
        except AlreadyExists:
            return  # ours is not in the cache yet, or that of a deleted pod is not garbage-collected yet
        except (KubeError, TimeoutError) as error:
            if isinstance(error, NotFound):
                self._view.lost(pod)
            self._settings.metrics.failed()
            log.warning(
                f"the CPU limit of pod {move.key} was not written",
                pod=move.key,
                error=str(error) or "timeout",
            )
            return
        self._settings.metrics.moved(move.before, move.limit)
        log.info(
            f"pod {move.key} is to get the CPU limit {units.text(move.limit)}",
            pod=move.key,
            limit=units.text(move.limit),
            reason=move.sentence,
        )

    async def _send(self, move: SetLimit, pod: Pod) -> None:
        ours, amount = self._view.ours(pod), units.text(move.limit)
        if ours is not None:
            patch = {"metadata": {"uid": ours.metadata.uid}, "spec": {"desiredCPULimit": amount}}
            meta = ours.metadata
            written = await self._api.patch(POD_ALLOCATIONS, meta.name, patch, namespace=meta.namespace)
            self._view.wrote(pod, written)
            return
        meta = pod.metadata
        owner = {"apiVersion": PODS.api_version, "kind": PODS.kind, "name": meta.name, "uid": meta.uid}
        spec = {
            "namespace": meta.namespace,
            "podName": meta.name,
            "desiredCPULimit": amount,
            "nodeName": self._settings.node,
        }
        body = {"metadata": {"name": meta.name, "ownerReferences": [owner]}, "spec": spec}
        self._view.wrote(pod, await self._api.create(POD_ALLOCATIONS, body, namespace=meta.namespace))

    def _told(self, seen: NodeObservation, done: TickResult) -> MarketReport:
        chosen = self._settings
        report = market_report.build(chosen.node, seen, done, chosen.policy, dry_run=chosen.dry_run)
        by_hand = {pod.metadata.key: BY_HAND for pod in self._view.managed() if self._view.by_hand(pod)}
        return market_report.with_reasons(report, by_hand) if by_hand else report

    async def _live(self, report: MarketReport) -> None:
        """Renew the Lease, with the report in an annotation."""
        now, chosen = self._settings.clock.monotonic(), self._settings
        if self._last_heartbeat is not None and now - self._last_heartbeat < chosen.heartbeat:
            return
        moment = chosen.clock.now()
        body = lease(msgspec.structs.replace(report, at=moment), chosen, micro_time(moment))
        try:
            async with asyncio.timeout(WRITE_TIMEOUT):
                await self._api.apply(LEASES, body, namespace=chosen.namespace, force=True)
        except (KubeError, TimeoutError) as error:
            chosen.metrics.heartbeat(succeeded=False)
            log.warning(
                f"the market agent of node {chosen.node} could not write its heartbeat",
                node=chosen.node,
                error=str(error) or "timeout",
            )
            return
        chosen.metrics.heartbeat(succeeded=True)
        self._last_heartbeat = now


def lease(report: MarketReport, chosen: MarketAgentOptions, moment: str) -> dict[str, object]:
    return wire.LEASE.body(
        chosen.node,
        chosen.namespace,
        wire.encode(report),
        labels={wire.AGENT_LABEL: wire.DRY_RUN if chosen.dry_run else wire.ACTIVE},
        seconds=int(MARKET_AGENT_TIMEOUT),
        moment=moment,
    )


def _moves(done: TickResult) -> list[SetLimit]:
    return [decision for decision in done.decisions if isinstance(decision, SetLimit)]


def _sorted(moves: Iterable[SetLimit]) -> tuple[list[SetLimit], list[SetLimit]]:
    """Decreases and raises."""
    down = [move for move in moves if move.limit < move.before]
    return down, [move for move in moves if move not in down]
