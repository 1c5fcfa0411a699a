"""Subscribers to changes of nodes: of their ledgers, or of the findings about them."""

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class Subscribers:
    def __init__(self) -> None:
        self._subscribers: list[Callable[[str], None]] = []

    def add(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call `changed` on every change; the returned function unsubscribes."""
        self._subscribers.append(changed)
        return lambda: self._subscribers.remove(changed) if changed in self._subscribers else None

    def notify(self, node: str) -> None:
        for changed in tuple(self._subscribers):
            try:
                changed(node)
            except Exception:  # an error of one subscriber must not affect the others or a commit
                log.exception(f"a subscriber failed on a change of node {node}")
