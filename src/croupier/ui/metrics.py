"""Metrics of the web page's server."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from croupier.kube.controller.metrics import LATENCY_BUCKETS


class PageMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.streams = Gauge("croupier_ui_streams", "Open streams of browsers", registry=registry)
        self.deltas = Counter("croupier_ui_deltas", "Changes published to browsers", registry=registry)
        self.resets = Counter(
            "croupier_ui_stream_resets",
            "Streams ended because the browser was too far behind",
            registry=registry,
        )
        self.update_seconds = Histogram(
            "croupier_ui_update_duration_seconds",
            "Duration of computing and publishing the rows that changed",
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.snapshot_seconds = Histogram(
            "croupier_ui_snapshot_duration_seconds",
            "Duration of encoding a snapshot",
            ["part"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.unexplained = Gauge(
            "croupier_ui_unexplained_pods", "Pending pods without a computed reason yet", registry=registry
        )
        self.history_bytes = Gauge(
            "croupier_ui_history_bytes", "Memory that the history of rows uses", registry=registry
        )
        self.actions = Counter(
            "croupier_ui_actions", "Actions that users sent", ["action", "result"], registry=registry
        )
        self.refused = Counter(
            "croupier_ui_refused_requests",
            "Requests refused before they reached a route",
            ["reason"],
            registry=registry,
        )
