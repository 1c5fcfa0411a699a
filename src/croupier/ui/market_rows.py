"""The rows and series of the CPU market, from the Leases of its agents."""

from datetime import datetime
from typing import Final

from croupier.api import market_report
from croupier.api.core_v1 import Lease
from croupier.core.model.agent_liveness import MARKET_AGENT_TIMEOUT
from croupier.kube.cache.store import ObjectChange, Store
from croupier.kube.client.clock import Clock
from croupier.ui import rows
from croupier.ui.series import MarketSeries
from croupier.ui.tables import Tables

LIVENESS_INTERVAL: Final = 5.0
"""Seconds between checks whether agents still renew their Leases."""


class MarketRows:
    def __init__(self, leases: Store[Lease], tables: Tables, clock: Clock) -> None:
        self.series = MarketSeries()
        self._leases = leases
        self._tables = tables
        self._clock = clock
        self._marked: set[str] = set()
        self._nodes: dict[str, Lease] = {}
        self._alive: dict[str, bool] = {}
        self._checked = 0.0

    def mark(self, change: ObjectChange[Lease]) -> None:
        for lease in (change.old, change.new):
            if lease is not None:
                node = market_report.LEASE.node_of(lease)
                self._marked.add(node)
                self._nodes.pop(node, None)
        if change.new is not None:
            self._nodes[market_report.LEASE.node_of(change.new)] = change.new

    def lease(self, node: str) -> Lease | None:
        return self._nodes.get(node)

    def update(self) -> None:
        now = self._clock.now().timestamp()
        if now - self._checked >= LIVENESS_INTERVAL:
            self._checked = now
            self._marked |= {
                node for node, alive in self._alive.items() if alive != self._is_alive(node, now)
            }
        marked, self._marked = self._marked, set()
        for node in marked:
            self._put(node, now)

    def _put(self, node: str, now: float) -> None:
        lease = self._nodes.get(node)
        if lease is None:
            self._alive.pop(node, None)
            self.series.forget(node)
            self._tables.put("market", node, None)
            return
        report = market_report.LEASE.decode(lease)
        alive = self._alive[node] = self._is_alive(node, now)
        self._tables.put("market", node, rows.market(report, alive=alive, last_seen=_renewed(lease)))
        if report is not None and alive:
            self.series.add(node, report, now)

    def _is_alive(self, node: str, now: float) -> bool:
        lease = self._nodes.get(node)
        renewed = _renewed(lease) if lease is not None else None
        return renewed is not None and now - renewed <= MARKET_AGENT_TIMEOUT


def _renewed(lease: Lease) -> float | None:
    try:
        return datetime.fromisoformat(lease.spec.renew_time).timestamp()
    except ValueError:
        return None
