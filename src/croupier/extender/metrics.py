"""Metrics of extender requests: duration and outcome."""

from prometheus_client import CollectorRegistry, Counter, Histogram

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ExtenderMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "croupier_extender_request_duration_seconds",
            "Time to answer a request of kube-scheduler",
            ["verb"],
            buckets=SECONDS,
            registry=registry,
        )
        self._answers = Counter(
            "croupier_extender_requests",
            "Requests of kube-scheduler by verb and outcome",
            ["verb", "outcome"],
            registry=registry,
        )

    def answered(self, verb: str, outcome: str, seconds: float) -> None:
        self._seconds.labels(verb).observe(seconds)
        self._answers.labels(verb, outcome).inc()
