"""What the agents report, by node; read once for each change of a report, not for each heartbeat.

Most changes are of temperatures and the like, which concern few: whoever listens says what concerns him.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final

from croupier.api.core_v1 import Lease
from croupier.api.gpu import agent_report
from croupier.api.gpu.agent_report import CARDS, AgentReport
from croupier.controllers.watched import Watched
from croupier.kube.store import Change, Index

_UNSAID: Final = object()


class AgentReports:
    def __init__(self, leases: Watched[Lease]) -> None:
        self.leases = leases
        self._by_node = leases.store.index(lambda one: (agent_report.node_of(one),))
        self._read: dict[str, tuple[str, AgentReport | None]] = {}

    @property
    def indexes(self) -> tuple[Index[Any, Any], ...]:
        """For whoever says how long they are kept."""
        return (self._by_node,)

    def lease(self, node: str) -> Lease | None:
        return next(iter(self._by_node.get(node)), None)

    def of(self, node: str) -> AgentReport | None:
        lease = self.lease(node)
        if lease is None:
            self._read.pop(node, None)
            return None
        text = lease.metadata.annotations.get(CARDS, "")
        known = self._read.get(node)
        if known is None or known[0] != text:
            known = self._read[node] = (text, agent_report.read(lease))
        return known[1]

    def subscribe(
        self,
        told: Callable[[str], None],
        what: Callable[[AgentReport | None], Hashable],
        *,
        heard: Callable[[str], None] | None = None,
    ) -> Callable[[], None]:
        """`told` hears of nodes of which `what` is said changed, `heard` of every heartbeat.

        A Lease that is seen for the first time is no heartbeat: it may be years old.
        """
        said: dict[str, Hashable] = {}

        def changed(change: Change[Lease]) -> None:
            node = agent_report.node_of(change.new or change.old or Lease())
            if heard is not None and change.old is not None and change.new is not None:
                heard(node)
            if _text(change.old) == _text(change.new):
                return
            before, now = said.pop(node, _UNSAID), what(self.of(node))
            if change.new is not None:
                said[node] = now
            if before != now:
                told(node)

        return self.leases.store.subscribe(changed)


def _text(lease: Lease | None) -> str | None:
    return None if lease is None else lease.metadata.annotations.get(CARDS, "")
