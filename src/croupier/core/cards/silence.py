"""Whether the agent of a node is still heard.

Clocks are not compared: a sign of life counts from when it was first seen to differ from the one before,
by the clock of who looks. Who only just began to look gives the agent its time; but one that was silent
before stays so until it is heard.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Heard:
    """The last sign of life, and when it was first seen."""

    sign: str
    since: float
    doubted: bool = False
    """It was silent when the looking began, and has not been heard since."""

    def is_silent(self, now: float, patience: float) -> bool:
        return self.doubted or now - self.since > patience

    def left(self, now: float, patience: float) -> float:
        """Seconds until it is silent, if nothing is heard; 0 when it is."""
        return 0.0 if self.doubted else max(0.0, self.since + patience - now)


def listen(before: Heard | None, sign: str, now: float, *, was_silent: bool) -> Heard:
    """`was_silent` is what stands written of the agent."""
    if before is None:
        return Heard(sign, now, doubted=was_silent)
    return before if before.sign == sign else Heard(sign, now)
