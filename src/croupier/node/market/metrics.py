"""The market's metrics: `mbcas_*`. Classes and pods are collected from the last round on each scrape."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from croupier.api.market_report import MarketReport
from croupier.core import quantity

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class MarketMetrics:
    """A collector for the values of the last round."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._report: MarketReport | None = None
        self._ticks = Histogram(
            "mbcas_round_duration_seconds", "Duration of one market round", buckets=SECONDS, registry=registry
        )
        self._moves = Counter(
            "mbcas_limit_writes", "Desired limits written, by direction", ["direction"], registry=registry
        )
        self._failures = Counter(
            "mbcas_write_failures", "Failed writes of desired limits; they are retried", registry=registry
        )
        self._beats = Counter("mbcas_heartbeats", "Heartbeats by outcome", ["outcome"], registry=registry)
        for direction in ("up", "down"):
            self._moves.labels(direction)
        registry.register(self)

    def ticked(self, report: MarketReport, seconds: float) -> None:
        self._report = report
        self._ticks.observe(seconds)

    def moved(self, before: int, after: int) -> None:
        self._moves.labels("up" if after > before else "down").inc()

    def failed(self) -> None:
        self._failures.inc()

    def heartbeat(self, *, succeeded: bool) -> None:
        self._beats.labels("written" if succeeded else "failed").inc()

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        if (report := self._report) is None:
            return
        factor = GaugeMetricFamily(
            "mbcas_overcommit_factor", "Allowed sum of latency pod limits per CPU of the node"
        )
        factor.add_metric([], report.factor)
        outside = GaugeMetricFamily("mbcas_unmanaged_usage_cores", "CPU used outside the market")
        outside.add_metric([], _cpu(report.outside))
        yield factor
        yield outside
        yield from _books(report)
        yield from _pods(report)


def _books(report: MarketReport) -> Iterator[Metric]:
    supply = GaugeMetricFamily("mbcas_supply_cores", "CPU available for limits", labels=["class"])
    given = GaugeMetricFamily("mbcas_allotted_cores", "CPU allotted by the last clearing", labels=["class"])
    price = GaugeMetricFamily("mbcas_price", "Price of 10m CPU in units of weight", labels=["class"])
    for book in report.books:
        supply.add_metric([book.name], _cpu(book.supply))
        given.add_metric([book.name], _cpu(book.given))
        price.add_metric([book.name], book.price)
    yield from (supply, given, price)


def _pods(report: MarketReport) -> Iterator[Metric]:
    labels = ["namespace", "pod"]
    demand = GaugeMetricFamily("mbcas_pod_demand_cores", "Estimated CPU demand of a pod", labels=labels)
    limit = GaugeMetricFamily("mbcas_pod_limit_cores", "Desired CPU limit of a pod", labels=labels)
    target = GaugeMetricFamily(
        "mbcas_pod_target_cores", "CPU limit of a pod by the last clearing", labels=labels
    )
    throttled = GaugeMetricFamily(
        "mbcas_pod_throttled_ratio", "Share of periods in which a pod was throttled", labels=labels
    )
    for pod in report.pods:
        where = pod.pod.split("/", 1)
        demand.add_metric(where, _cpu(pod.demand))
        limit.add_metric(where, _cpu(pod.limit))
        target.add_metric(where, _cpu(pod.target))
        throttled.add_metric(where, pod.throttled_percent / 100)
    yield from (demand, limit, target, throttled)


def _cpu(written: str) -> float:
    return quantity.parse(written).nanos / quantity.NANO
