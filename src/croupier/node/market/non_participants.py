"""CPU usage outside the market: the CPU time of the node minus that of the managed containers.

Differences are computed between consecutive readings, so that a pod that joins or leaves causes no jump.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from croupier.core.market import estimation
from croupier.core.market.estimation import CPUSample, DemandEstimate


@dataclass(frozen=True, slots=True)
class NonParticipants:
    everything: int | None = None
    """CPU time of the whole node at the last reading."""
    traders: Mapping[str, int] = field(default_factory=dict)
    """CPU time of each managed container at the last reading."""
    counter: int = 0
    estimate: DemandEstimate = estimation.NO_ESTIMATE

    @property
    def usage(self) -> int:
        """In millionths of a CPU, averaged over a minute."""
        return self.estimate.usage


def update(
    before: NonParticipants, everything: int | None, samples: list[CPUSample], at: int
) -> NonParticipants:
    traders = {sample.container: sample.usage for sample in samples}
    if everything is None:
        return NonParticipants(None, traders, before.counter, estimation.estimate(before.estimate, None))
    used = 0
    if before.everything is not None:
        theirs = sum(
            max(0, usage - before.traders[name]) for name, usage in traders.items() if name in before.traders
        )
        used = max(0, everything - before.everything - theirs)
    counter = before.counter + used
    return NonParticipants(
        everything, traders, counter, estimation.estimate(before.estimate, CPUSample(at, counter))
    )
