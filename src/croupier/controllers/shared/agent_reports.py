"""The reports of agents by node, parsed once for each change of a report instead of each heartbeat.

Most changes are readings such as temperatures, so a subscriber selects the fields that it needs.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final

from croupier.api.core_v1 import Lease
from croupier.api.gpu import agent_report
from croupier.api.gpu.agent_report import REPORT_ANNOTATION, AgentReport
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.store import ObjectChange, StoreIndex

_UNKNOWN: Final = object()


class AgentReports:
    def __init__(self, leases: Informer[Lease]) -> None:
        self.leases = leases
        self._by_node = leases.store.index(lambda lease: (agent_report.LEASE.node_of(lease),))
        self._read: dict[str, tuple[str, AgentReport | None]] = {}

    @property
    def indexes(self) -> tuple[StoreIndex[Any, Any], ...]:
        """The indexes that the caller must keep up to date."""
        return (self._by_node,)

    def lease(self, node: str) -> Lease | None:
        return next(iter(self._by_node.get(node)), None)

    def of(self, node: str) -> AgentReport | None:
        lease = self.lease(node)
        if lease is None:
            self._read.pop(node, None)
            return None
        text = lease.metadata.annotations.get(REPORT_ANNOTATION, "")
        known = self._read.get(node)
        if known is None or known[0] != text:
            known = self._read[node] = (text, agent_report.LEASE.decode(lease))
        return known[1]

    def subscribe(
        self,
        notify: Callable[[str], None],
        select: Callable[[AgentReport | None], Hashable],
        *,
        heartbeat: Callable[[str], None] | None = None,
    ) -> Callable[[], None]:
        """Call `notify` with a node whose selected fields changed, and `heartbeat` at every heartbeat.

        The first event of a Lease is no heartbeat: the Lease may be old.
        """
        selected: dict[str, Hashable] = {}

        def changed(change: ObjectChange[Lease]) -> None:
            node = agent_report.LEASE.node_of(change.new or change.old or Lease())
            if heartbeat is not None and change.old is not None and change.new is not None:
                heartbeat(node)
            if _text(change.old) == _text(change.new):
                return
            before, now = selected.pop(node, _UNKNOWN), select(self.of(node))
            if change.new is not None:
                selected[node] = now
            if before != now:
                notify(node)

        return self.leases.store.subscribe(changed)


def _text(lease: Lease | None) -> str | None:
    return None if lease is None else lease.metadata.annotations.get(REPORT_ANNOTATION, "")
