"""Subscribers to changes of ledgers."""

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class Listeners:
    def __init__(self) -> None:
        self._told: list[Callable[[str], None]] = []

    def add(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call `changed` on every change; the returned function unsubscribes."""
        self._told.append(changed)
        return lambda: self._told.remove(changed) if changed in self._told else None

    def tell(self, node: str) -> None:
        for changed in tuple(self._told):
            try:
                changed(node)
            except Exception:  # an error of one subscriber must not affect the others or a commit
                log.exception("a subscriber failed on a change of the ledger of node %s", node)
