"""Metrics of the audit: findings left and repaired, by class."""

from collections import Counter as Counted
from typing import get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

from croupier.core.ledger.finding import FindingKind


class AuditMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._left = Gauge(
            "croupier_audit_findings", "Audit findings that are not repaired", ["class"], registry=registry
        )
        self._repaired = Counter(
            "croupier_audit_repaired", "Audit findings that were repaired", ["class"], registry=registry
        )
        for kind in get_args(FindingKind):  # a class without findings is 0, not absent
            self._left.labels(kind).set(0)
            self._repaired.labels(kind)

    def left(self, by_class: Counted[str]) -> None:
        for kind in get_args(FindingKind):
            self._left.labels(kind).set(by_class[kind])

    def repaired(self, kind: str) -> None:
        self._repaired.labels(kind).inc()
