"""Whether the agent of a node still sends heartbeats.

Clocks of machines are not compared: a heartbeat counts from when this process first saw a new value.
After a restart the agent gets the full timeout again; an agent that was recorded as silent stays silent until
its next heartbeat.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LastHeartbeat:
    """The last heartbeat, and when it was first seen."""

    renew_time: str
    since: float
    recorded_silent: bool = False
    """The agent was recorded as silent when this process started, and has sent no heartbeat since."""

    def is_silent(self, now: float, timeout: float) -> bool:
        return self.recorded_silent or now - self.since > timeout

    def left(self, now: float, timeout: float) -> float:
        """Seconds until the agent is silent without a new heartbeat; 0 if it is silent."""
        return 0.0 if self.recorded_silent else max(0.0, self.since + timeout - now)


def observe(before: LastHeartbeat | None, renew_time: str, now: float, *, was_silent: bool) -> LastHeartbeat:
    """`was_silent`: the agent is recorded as silent."""
    if before is None:
        return LastHeartbeat(renew_time, now, recorded_silent=was_silent)
    return before if before.renew_time == renew_time else LastHeartbeat(renew_time, now)
