"""The agent of one node: every second it reads, senses, clears, and writes what limits should be.

It decides nothing itself (core/market does) and enforces nothing (the PodAllocation's controller does). What
it remembers may be lost at any moment. Its sign of life is a Lease, written after a whole round and only if
counters could be read: an agent that is blind falls silent, and limits go back to what pods came with.
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
"""Who limits are written by."""
WRITE_WITHIN: Final = 10.0
"""Seconds for all writes of one round; what was not written is decided again."""
NO_LONGER: Final = "given back: it no longer takes part"

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
    """Where the Lease is."""
    policy: Policy = policies.DEFAULT
    dry_run: bool = False
    every: float = 1.0
    """Seconds between readings,"""
    beat: float = 10.0
    """and between signs of life."""
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
        """Of the last round."""

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
        """Read, decide, write; then a sign of life if one is due."""
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
        """Files, in a thread: what everything uses, and the counters of every container that takes part."""
        readings: dict[str, dict[str, Sample | None]] = {}
        for (uid, container), place in places.items():
            readings.setdefault(uid, {})[container] = self._tree.sample(place, self._now)
        return self._tree.usage(), readings

    def _observed(
        self, everything: int | None, readings: dict[str, dict[str, Sample | None]]
    ) -> Observation | None:
        samples = [one for pod in readings.values() for one in pod.values() if one is not None]
        self._outside = market_outside.follow(self._outside, everything, samples, self._now())
        return self._sight.observe(readings, outside=self._outside.usage, pretended=self._pretended)

    def _returns(self) -> list[Move]:
        """Who no longer takes part gets back what it came with."""
        found = []
        for pod in self._sight.left():
            ours, original = self._sight.ours(pod), self._sight.original(pod)
            before = original if ours is None else sight.desired(ours)
            if before != original:
                found.append(Move(pod.metadata.key, pod.metadata.uid, before, original, NO_LONGER))
        return found

    async def _carry_out(self, moves: Sequence[Move]) -> None:
        """Decreases first. (A raise is only ever decided for room that is free already.)"""
        if self._settings.dry_run:
            self._pretend(moves)
            return
        pods = {pod.metadata.uid: pod for pod in (*self._sight.managed(), *self._sight.left())}
        down, up = _sorted(moves)
        for group in (down, up):
            await asyncio.gather(*(self._write(one, pods[one.uid]) for one in group if one.uid in pods))

    def _pretend(self, moves: Iterable[Move]) -> None:
        for move in moves:
            if self._pretended.get(move.uid) != move.limit:
                log.info("would move", pod=move.key, limit=units.text(move.limit), why=move.sentence)
                self._settings.gauge.moved(move.before, move.limit)
                self._pretended[move.uid] = move.limit
        here = {pod.metadata.uid for pod in (*self._sight.managed(), *self._sight.left())}
        self._pretended = {uid: limit for uid, limit in self._pretended.items() if uid in here}

    async def _write(self, move: Move, pod: Pod) -> None:
        try:
            async with asyncio.timeout(WRITE_WITHIN):
                await self._send(move, pod)
        except AlreadyExists:
            return  # ours is not seen yet, or the garbage collector is about to remove a namesake's
        except (KubeError, TimeoutError) as error:
            if isinstance(error, NotFound):
                self._sight.lost(pod)
            self._settings.gauge.failed()
            log.warning("a limit was not written", pod=move.key, error=str(error) or "no answer in time")
            return
        self._settings.gauge.moved(move.before, move.limit)
        log.info("moves", pod=move.key, limit=units.text(move.limit), why=move.sentence)

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
        told = market_report.of(chosen.node, seen, done, chosen.policy, dry_run=chosen.dry_run)
        by_hand = {pod.metadata.key: BY_HAND for pod in self._sight.managed() if self._sight.by_hand(pod)}
        return market_report.reworded(told, by_hand) if by_hand else told

    async def _live(self, report: Report) -> None:
        """The Lease, with the books for people."""
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
            log.warning("no sign of life was written", error=str(error) or "no answer in time")
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
    return [one for one in done.decisions if isinstance(one, Move)]


def _sorted(moves: Iterable[Move]) -> tuple[list[Move], list[Move]]:
    """Down, and up."""
    down = [move for move in moves if move.limit < move.before]
    return down, [move for move in moves if move not in down]
