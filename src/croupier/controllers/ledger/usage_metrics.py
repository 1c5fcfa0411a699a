"""The metric of usage: the totals of the last record."""

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, Metric

from croupier.core.usage.account import KeyTotal
from croupier.core.usage.holdings import UsageKey


class UsageMetrics:
    """`croupier_card_seconds_total{namespace,pool,model,mode}`: the recorded totals."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._totals: dict[UsageKey, float] = {}
        registry.register(self)

    def update(self, totals: Mapping[UsageKey, KeyTotal]) -> None:
        """A counter never decreases: a small correction waits until later usage exceeds it."""
        self._totals = {
            key: max(float(total.card_seconds), self._totals.get(key, 0.0)) for key, total in totals.items()
        }

    def collect(self) -> Iterator[Metric]:
        seconds = CounterMetricFamily(
            "croupier_card_seconds",
            "Seconds that cards were held, multiplied by the held share of the card",
            labels=["namespace", "pool", "model", "mode"],
        )
        for key, total in sorted(self._totals.items()):
            seconds.add_metric([key.namespace, key.pool, key.model, key.mode], total)
        yield seconds
