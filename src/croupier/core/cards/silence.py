"""Whether the agent of a node still sends heartbeats.

Clocks of machines are not compared: a heartbeat counts from when this process first saw a new value.
After a restart the agent gets the full timeout again; an agent that was recorded as silent stays silent until
its next heartbeat.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Heard:
    """The last heartbeat, and when it was first seen."""

    sign: str
    since: float
    doubted: bool = False
    """The agent was recorded as silent when this process started, and has sent no heartbeat since."""

    def is_silent(self, now: float, patience: float) -> bool:
        return self.doubted or now - self.since > patience

    def left(self, now: float, patience: float) -> float:
        """Seconds until the agent is silent without a new heartbeat; 0 if it is silent."""
        return 0.0 if self.doubted else max(0.0, self.since + patience - now)


def listen(before: Heard | None, sign: str, now: float, *, was_silent: bool) -> Heard:
    """`was_silent`: the agent is recorded as silent."""
    if before is None:
        return Heard(sign, now, doubted=was_silent)
    return before if before.sign == sign else Heard(sign, now)
