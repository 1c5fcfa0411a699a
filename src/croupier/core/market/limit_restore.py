"""The limit of a pod whose market agent has stopped.

The agent may have stopped while the limit of an idle pod was low. So when its heartbeat has been missing for
a while, every pod gets back at least its original limit.
"""

from typing import Final

from croupier.core.market.units import MINUTE

AGENT_TIMEOUT: Final = 2 * MINUTE
"""An agent without a heartbeat for longer than this counts as stopped."""


def restored_limit(desired: int, original: int, *, silent_for: int, after: int = AGENT_TIMEOUT) -> int:
    return max(desired, original) if silent_for > after else desired
