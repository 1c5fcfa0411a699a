"""The market agent of one node: every second it reads CPU counters, runs a tick, and writes desired limits.

It does not decide (core/market does) nor enforce (the PodAllocation controller does). Its state may be lost
at any time. Its heartbeat is a Lease that it renews after a complete round, and only if the counters can be
read: an agent without counters sends no heartbeat, so that the original limits are restored.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec
import structlog

from croupier.api import market_report as wire
from croupier.api.core_v1 import Pod, micro_time
from croupier.api.kinds import LEASES, POD_ALLOCATIONS, PODS
from croupier.api.market_report import Report
from croupier.core.market import policy as policies
from croupier.core.market import silence, ticking, units
from croupier.core.market.policy import Policy
from croupier.core.market.seen import Move, Observation, Round, State
from croupier.core.market.sensing import Sample
from croupier.core.market.units import SECOND
from croupier.kube import store
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.errors import AlreadyExists, KubeError, NotFound
from croupier.node.market import outside as market_outside
from croupier.node.market import report as market_report
from croupier.node.market import sight
from croupier.node.market.cgroup import Tree
from croupier.node.market.cgroup_paths import Place
from croupier.node.market.outside import Outside
from croupier.node.market.sight import BY_HAND, Sight, Sources

REPORTER: Final = "croupier-market"
"""The field manager of the limits."""
WRITE_WITHIN: Final = 10.0
"""Timeout of a write in seconds; a failed write is decided again."""
NO_LONGER: Final = "original limit restored: the pod no longer takes part"

log = structlog.get_logger(__name__)


class Gauge(Protocol):
    def ticked(self, report: Report, seconds: float) -> None: ...
    def moved(self, before: int, after: int) -> None: ...
    def failed(self) -> None: ...
    def beat(self, *, well: bool) -> None: ...


class Unmeasured:
    def ticked(self, report: Report, seconds: float) -> None: ...
    def moved(self, before: int, after: int) -> None: ...
    def failed(self) -> None: ...
    def beat(self, *, well: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Settings:
    node: str
    namespace: str
    """The namespace of the Lease."""
    policy: Policy = policies.DEFAULT
    dry_run: bool = False
    every: float = 1.0
    """Seconds between rounds."""
    beat: float = 10.0
    """Seconds between heartbeats."""
    clock: Clock = field(default_factory=SystemClock)
    gauge: Gauge = field(default_factory=Unmeasured)


class Agent:
    def __init__(self, sources: Sources, tree: Tree, api: Client, settings: Settings) -> None:
        self._sight = Sight(settings.node, sources)
        self._tree = tree
        self._api = api
        self._settings = settings
        self._state = State()
        self._outside = Outside()
        self._pretended: dict[str, int] = {}
        self._beaten: float | None = None
        self.report: Report | None = None
        """The report of the last round."""

    async def run(self, stop: asyncio.Event) -> None:
        with store.kept(*self._sight.indexes):
            while not stop.is_set():
                began = self._settings.clock.monotonic()
                await self.round()
                await self._rest(began, stop)

    async def _rest(self, began: float, stop: asyncio.Event) -> None:
        passed = self._settings.clock.monotonic() - began
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._settings.every - passed)):
                await stop.wait()

    async def round(self) -> Round | None:
        """Read, decide and write; then send a heartbeat if one is due."""
        began = self._settings.clock.monotonic()
        seen = self._observed(*await asyncio.to_thread(self._read, self._sight.places()))
        if seen is None:
            return None
        policy = self._settings.policy
        done = ticking.tick(self._state, seen, policy, self._now())
        self._state = done.state
        await self._carry_out([*_moves(done), *self._returns()])
        self.report = self._told(seen, done)
        self._settings.gauge.ticked(self.report, self._settings.clock.monotonic() - began)
        if self._tree.trouble() is None:
            await self._live(self.report)
        return done

    def _now(self) -> int:
        return int(self._settings.clock.monotonic() * SECOND)

    def _read(
        self, places: dict[tuple[str, str], Place]
    ) -> tuple[int | None, dict[str, dict[str, Sample | None]]]:
        """Runs in a thread: the usage of the whole node, and the counters of every managed container."""
        readings: dict[str, dict[str, Sample | None]] = {}
        for (uid, container), place in places.items():
            readings.setdefault(uid, {})[container] = self._tree.sample(place, self._now)
        return self._tree.usage(), readings

    def _observed(
        self, everything: int | None, readings: dict[str, dict[str, Sample | None]]
    ) -> Observation | None:
        samples = [sample for pod in readings.values() for sample in pod.values() if sample is not None]
        self._outside = market_outside.follow(self._outside, everything, samples, self._now())
        return self._sight.observe(readings, outside=self._outside.usage, pretended=self._pretended)

    def _returns(self) -> list[Move]:
        """Restore the original limits of pods that no longer take part."""
        moves = []
        for pod in self._sight.left():
            ours, original = self._sight.ours(pod), self._sight.original(pod)
            before = original if ours is None else sight.desired(ours)
            if before != original:
                moves.append(Move(pod.metadata.key, pod.metadata.uid, before, original, NO_LONGER))
        return moves

    async def _carry_out(self, moves: Sequence[Move]) -> None:
        """Decreases first. (A raise is only decided if the CPU is free already.)"""
        if self._settings.dry_run:
            self._pretend(moves)
            return
        pods = {pod.metadata.uid: pod for pod in (*self._sight.managed(), *self._sight.left())}
        down, up = _sorted(moves)
        for group in (down, up):
            await asyncio.gather(*(self._write(move, pods[move.uid]) for move in group if move.uid in pods))

    def _pretend(self, moves: Iterable[Move]) -> None:
        for move in moves:
            if self._pretended.get(move.uid) != move.limit:
                log.info("would set a limit", pod=move.key, limit=units.text(move.limit), why=move.sentence)
                self._settings.gauge.moved(move.before, move.limit)
                self._pretended[move.uid] = move.limit
        here = {pod.metadata.uid for pod in (*self._sight.managed(), *self._sight.left())}
        self._pretended = {uid: limit for uid, limit in self._pretended.items() if uid in here}

    async def _write(self, move: Move, pod: Pod) -> None:
        try:
            async with asyncio.timeout(WRITE_WITHIN):
                await self._send(move, pod)
        except AlreadyExists:
            return  # ours is not in the cache yet, or that of a deleted pod is not garbage-collected yet
        except (KubeError, TimeoutError) as error:
            if isinstance(error, NotFound):
                self._sight.lost(pod)
            self._settings.gauge.failed()
            log.warning("could not write a limit", pod=move.key, error=str(error) or "timeout")
            return
        self._settings.gauge.moved(move.before, move.limit)
        log.info("wrote a limit", pod=move.key, limit=units.text(move.limit), why=move.sentence)

    async def _send(self, move: Move, pod: Pod) -> None:
        ours, amount = self._sight.ours(pod), units.text(move.limit)
        if ours is not None:
            patch = {"metadata": {"uid": ours.metadata.uid}, "spec": {"desiredCPULimit": amount}}
            meta = ours.metadata
            written = await self._api.patch(POD_ALLOCATIONS, meta.name, patch, namespace=meta.namespace)
            self._sight.wrote(pod, written)
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
        self._sight.wrote(pod, await self._api.create(POD_ALLOCATIONS, body, namespace=meta.namespace))

    def _told(self, seen: Observation, done: Round) -> Report:
        chosen = self._settings
        report = market_report.of(chosen.node, seen, done, chosen.policy, dry_run=chosen.dry_run)
        by_hand = {pod.metadata.key: BY_HAND for pod in self._sight.managed() if self._sight.by_hand(pod)}
        return market_report.reworded(report, by_hand) if by_hand else report

    async def _live(self, report: Report) -> None:
        """Renew the Lease, with the report in an annotation."""
        now, chosen = self._settings.clock.monotonic(), self._settings
        if self._beaten is not None and now - self._beaten < chosen.beat:
            return
        moment = chosen.clock.now()
        body = lease(msgspec.structs.replace(report, at=moment), chosen, micro_time(moment))
        try:
            async with asyncio.timeout(WRITE_WITHIN):
                await self._api.apply(LEASES, body, namespace=chosen.namespace, force=True)
        except (KubeError, TimeoutError) as error:
            chosen.gauge.beat(well=False)
            log.warning("could not write the heartbeat", error=str(error) or "timeout")
            return
        chosen.gauge.beat(well=True)
        self._beaten = now


def lease(report: Report, chosen: Settings, moment: str) -> dict[str, object]:
    return {
        "metadata": {
            "name": wire.lease_name(chosen.node),
            "namespace": chosen.namespace,
            "labels": {wire.AGENT: wire.WATCHING if chosen.dry_run else wire.TRADING},
            "annotations": {wire.NODE: chosen.node, wire.BOOKS: wire.written(report)},
        },
        "spec": {
            "holderIdentity": chosen.node,
            "leaseDurationSeconds": silence.SILENT // SECOND,
            "renewTime": moment,
        },
    }


def _moves(done: Round) -> list[Move]:
    return [decision for decision in done.decisions if isinstance(decision, Move)]


def _sorted(moves: Iterable[Move]) -> tuple[list[Move], list[Move]]:
    """Decreases and raises."""
    down = [move for move in moves if move.limit < move.before]
    return down, [move for move in moves if move not in down]
