"""What the market counts: `mbcas_*`. The books and pods are read from the last tick when somebody looks."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from croupier.api.market_report import Report
from croupier.core import quantity

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class MarketMetrics:
    """Fits `market.Gauge`; a collector for what belongs to the last tick."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._report: Report | None = None
        self._ticks = Histogram(
            "mbcas_tick_seconds", "Time to read, clear and write once", buckets=SECONDS, registry=registry
        )
        self._moves = Counter(
            "mbcas_moves", "Limits that were written, by direction", ["direction"], registry=registry
        )
        self._failures = Counter(
            "mbcas_write_failures", "Limits that could not be written; tried again", registry=registry
        )
        self._beats = Counter(
            "mbcas_heartbeats", "Signs of life, by how they ended", ["outcome"], registry=registry
        )
        for direction in ("up", "down"):
            self._moves.labels(direction)
        registry.register(self)

    def ticked(self, report: Report, seconds: float) -> None:
        self._report = report
        self._ticks.observe(seconds)

    def moved(self, before: int, after: int) -> None:
        self._moves.labels("up" if after > before else "down").inc()

    def failed(self) -> None:
        self._failures.inc()

    def beat(self, *, well: bool) -> None:
        self._beats.labels("written" if well else "failed").inc()

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        if (report := self._report) is None:
            return
        factor = GaugeMetricFamily("mbcas_overcommit_factor", "Limits of latency pods for each CPU")
        factor.add_metric([], report.factor)
        outside = GaugeMetricFamily("mbcas_outside_cpu", "CPU used by all that takes no part")
        outside.add_metric([], _cpu(report.outside))
        yield factor
        yield outside
        yield from _books(report)
        yield from _pods(report)


def _books(report: Report) -> Iterator[Metric]:
    supply = GaugeMetricFamily("mbcas_supply_cpu", "CPU for sale", labels=["book"])
    given = GaugeMetricFamily("mbcas_given_cpu", "CPU that the last clearing gives", labels=["book"])
    price = GaugeMetricFamily("mbcas_price", "Weight that 10m CPU cost", labels=["book"])
    for book in report.books:
        supply.add_metric([book.name], _cpu(book.supply))
        given.add_metric([book.name], _cpu(book.given))
        price.add_metric([book.name], book.price)
    yield from (supply, given, price)


def _pods(report: Report) -> Iterator[Metric]:
    labels = ["namespace", "pod"]
    demand = GaugeMetricFamily("mbcas_pod_demand_cpu", "CPU a pod would use", labels=labels)
    limit = GaugeMetricFamily("mbcas_pod_limit_cpu", "Limit a pod was told to have", labels=labels)
    target = GaugeMetricFamily("mbcas_pod_target_cpu", "Limit its book would give it", labels=labels)
    throttled = GaugeMetricFamily("mbcas_pod_throttled_ratio", "Periods it was held back in", labels=labels)
    for pod in report.pods:
        where = pod.pod.split("/", 1)
        demand.add_metric(where, _cpu(pod.demand))
        limit.add_metric(where, _cpu(pod.limit))
        target.add_metric(where, _cpu(pod.target))
        throttled.add_metric(where, pod.throttled_percent / 100)
    yield from (demand, limit, target, throttled)


def _cpu(written: str) -> float:
    return quantity.parse(written).nanos / quantity.NANO
