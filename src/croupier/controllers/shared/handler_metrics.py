"""The metric `gpu_handler_errors_total{handler}`: failed reconciles by handler."""

from prometheus_client import CollectorRegistry, Counter

from croupier.kube.controller.metrics import ControllerMetrics, ReconcileMetrics


class HandlerErrors:
    """One instance for each process; `of` creates the metrics of a controller that count here too."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._errors = Counter(
            "gpu_handler_errors",
            "Failed reconciles of cards, nodes and pools",
            ["handler"],
            registry=registry,
        )

    def of(self, handler: str, metrics: ReconcileMetrics) -> ControllerMetrics:
        return ControllerMetrics(handler, metrics, failures=self._errors.labels(handler))
