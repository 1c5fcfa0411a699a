"""The result of the last audit of each node: the findings that it could not repair."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from croupier.capacity.subscribers import Subscribers
from croupier.core.ledger.finding import LedgerFinding
from croupier.core.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class AuditResult:
    ledger: Ledger
    """The ledger that was compared."""
    findings: tuple[LedgerFinding, ...] = ()
    """The findings that were not repaired."""


class AuditFindings:
    def __init__(self) -> None:
        self._results: dict[str, AuditResult] = {}
        self._subscribers = Subscribers()

    def of(self, node: str) -> tuple[LedgerFinding, ...]:
        result = self._results.get(node)
        return () if result is None else result.findings

    def result(self, node: str) -> AuditResult | None:
        """The result of the last audit; None if the node was not audited yet."""
        return self._results.get(node)

    def every(self) -> Mapping[str, tuple[LedgerFinding, ...]]:
        """The findings of the nodes that have some, by name."""
        return {node: result.findings for node, result in self._results.items() if result.findings}

    def write(self, ledger: Ledger, findings: Iterable[LedgerFinding] = ()) -> None:
        """Record the result of an audit of this ledger."""
        new = AuditResult(ledger, tuple(findings))
        if self._results.get(ledger.node) != new:
            self._results[ledger.node] = new
            self._subscribers.notify(ledger.node)

    def keep_only(self, nodes: Iterable[str]) -> None:
        """Forget nodes that have no ledger any more."""
        for node in self._results.keys() - set(nodes):
            del self._results[node]

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call `changed` with the node when its result changes; the returned function unsubscribes."""
        return self._subscribers.add(changed)
