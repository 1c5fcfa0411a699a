"""CPU usage outside the market: the CPU time of the node minus that of the managed containers.

Differences are computed between consecutive readings, so that a pod that joins or leaves causes no jump.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from croupier.core.market import sensing
from croupier.core.market.sensing import Estimate, Sample


@dataclass(frozen=True, slots=True)
class Outside:
    everything: int | None = None
    """CPU time of the whole node at the last reading."""
    traders: Mapping[str, int] = field(default_factory=dict)
    """CPU time of each managed container at the last reading."""
    counter: int = 0
    estimate: Estimate = sensing.NOTHING

    @property
    def usage(self) -> int:
        """In millionths of a CPU, averaged over a minute."""
        return self.estimate.usage


def follow(before: Outside, everything: int | None, samples: list[Sample], at: int) -> Outside:
    traders = {sample.container: sample.usage for sample in samples}
    if everything is None:
        return Outside(None, traders, before.counter, sensing.estimate(before.estimate, None))
    used = 0
    if before.everything is not None:
        theirs = sum(
            max(0, usage - before.traders[name]) for name, usage in traders.items() if name in before.traders
        )
        used = max(0, everything - before.everything - theirs)
    counter = before.counter + used
    return Outside(everything, traders, counter, sensing.estimate(before.estimate, Sample(at, counter)))
