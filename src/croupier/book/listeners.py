"""Those who want to hear that the ledger of a node changed."""

import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class Listeners:
    def __init__(self) -> None:
        self._told: list[Callable[[str], None]] = []

    def add(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Tell `changed` from now on; the result ends that."""
        self._told.append(changed)
        return lambda: self._told.remove(changed) if changed in self._told else None

    def tell(self, node: str) -> None:
        for changed in tuple(self._told):
            try:
                changed(node)
            except Exception:  # one listener's mistake must not blind the others, nor stop a commit
                log.exception("a listener failed on the ledger of %s", node)
