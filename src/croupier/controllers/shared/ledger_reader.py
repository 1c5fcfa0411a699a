"""Read access to the ledgers of nodes; `controllers.ledger.read_only_ledgers` implements it."""

from collections.abc import Callable
from typing import Protocol

from croupier.core.ledger.ledger import Ledger


class LedgerReader(Protocol):
    def ledger(self, node: str) -> Ledger | None: ...
    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]: ...
