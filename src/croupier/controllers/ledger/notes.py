"""What the audit found and could not repair, by node, for whoever shows it."""

from collections.abc import Callable, Iterable, Mapping

from croupier.core.ledgers.finding import Finding


class Notes:
    def __init__(self) -> None:
        self._findings: dict[str, tuple[Finding, ...]] = {}
        self._listeners: list[Callable[[str], None]] = []

    def of(self, node: str) -> tuple[Finding, ...]:
        return self._findings.get(node, ())

    def every(self) -> Mapping[str, tuple[Finding, ...]]:
        """Nodes with findings, by name."""
        return self._findings

    def write(self, node: str, findings: Iterable[Finding]) -> None:
        now = tuple(findings)
        if now == self.of(node):
            return
        if now:
            self._findings[node] = now
        else:
            del self._findings[node]
        for told in tuple(self._listeners):
            told(node)

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Have `changed` told the node whenever its findings changed; the result ends that."""
        self._listeners.append(changed)
        return lambda: self._listeners.remove(changed) if changed in self._listeners else None
