"""Whether an agent still renews its Lease.

Clocks of machines are not compared: a heartbeat counts from when this process first saw a new renewal.
After a restart the agent gets the full timeout again; an agent that was recorded as silent stays silent until
its next heartbeat.
"""

from dataclasses import dataclass
from typing import Final

MARKET_AGENT_TIMEOUT: Final = 120.0
"""Seconds without a heartbeat after which a market agent counts as stopped."""
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class LastHeartbeat:
    """The last renewal, and when this process first saw it."""

    renew_time: str
    since: float
    known_silent: bool = False
    """The silence was recorded before this process started, or was confirmed by a direct read."""

    def is_silent(self, now: float, timeout: float) -> bool:
        return now - self.since > timeout

    def left(self, now: float, timeout: float) -> float:
        """Seconds until the agent is silent without a new heartbeat; 0 if it is silent."""
        return max(0.0, self.since + timeout - now)


def observe(before: LastHeartbeat | None, renew_time: str, now: float, *, was_silent: bool) -> LastHeartbeat:
    """`was_silent`: the agent is recorded as silent."""
    if before is None:
        return LastHeartbeat(renew_time, _NEVER if was_silent else now, known_silent=was_silent)
    return before if before.renew_time == renew_time else LastHeartbeat(renew_time, now)
