"""The findings that the audit could not repair, by node."""

from collections.abc import Callable, Iterable, Mapping

from croupier.capacity.subscribers import Subscribers
from croupier.core.ledger.finding import LedgerFinding


class AuditFindings:
    def __init__(self) -> None:
        self._findings: dict[str, tuple[LedgerFinding, ...]] = {}
        self._subscribers = Subscribers()

    def of(self, node: str) -> tuple[LedgerFinding, ...]:
        return self._findings.get(node, ())

    def every(self) -> Mapping[str, tuple[LedgerFinding, ...]]:
        """Nodes with findings, by name."""
        return self._findings

    def write(self, node: str, findings: Iterable[LedgerFinding]) -> None:
        current = tuple(findings)
        if current == self.of(node):
            return
        if current:
            self._findings[node] = current
        else:
            del self._findings[node]
        self._subscribers.notify(node)

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call `changed` with the node when its findings change; the returned function unsubscribes."""
        return self._subscribers.add(changed)
