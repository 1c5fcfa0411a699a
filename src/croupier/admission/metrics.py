"""Metrics of the admission webhooks: latency, outcomes, fallbacks and certificate expiry.

Users choose the names in a pod, so fallback pairs are counted by name only up to a maximum and as "other"
beyond it: no user can inflate a scrape.
"""

from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
MAX_PAIRS: Final = 256
OTHER: Final = ("other", "other")


class AdmissionMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            "croupier_admission_review_duration_seconds",
            "Time from a received AdmissionReview to its answer",
            ["webhook"],
            buckets=SECONDS,
            registry=registry,
        )
        self._answers = Counter(
            "croupier_admission_reviews",
            "AdmissionReviews by outcome",
            ["webhook", "outcome"],
            registry=registry,
        )
        self._fallbacks = Counter(
            "croupier_fallbacks", "Rewritten requests by profile", ["from", "to"], registry=registry
        )
        self._expiry = Gauge(
            "croupier_webhook_certificate_expiry_timestamp_seconds",
            "Expiry time of the serving certificate",
            registry=registry,
        )
        self._pairs: set[tuple[str, str]] = set()

    def answered(self, webhook: str, outcome: str, seconds: float) -> None:
        self._seconds.labels(webhook).observe(seconds)
        self._answers.labels(webhook, outcome).inc()

    def refused(self, webhook: str, outcome: str) -> None:
        """The request was refused before it was read, so there is no latency."""
        self._answers.labels(webhook, outcome).inc()

    def rewritten(self, before: str, after: str) -> None:
        pair = (before, after)
        if pair not in self._pairs and len(self._pairs) >= MAX_PAIRS:
            pair = OTHER
        else:
            self._pairs.add(pair)
        self._fallbacks.labels(*pair).inc()

    def serving_until(self, end: datetime) -> None:
        self._expiry.set(end.timestamp())
