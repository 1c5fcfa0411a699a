"""Failed reconciles are counted by handler, in addition to the metrics of each controller."""

import asyncio

from prometheus_client import CollectorRegistry

from croupier.controllers.shared.handler_metrics import HandlerErrors
from croupier.kube.controller.control_loop import Controller
from croupier.kube.controller.metrics import ReconcileMetrics
from croupier.kube.controller.reconcile import DONE, Result, TerminalError
from tests.controllers.ledger_env import running
from tests.polling import until


async def test_failures_are_counted_and_successes_are_not():
    registry = CollectorRegistry()
    metrics = HandlerErrors(registry).of("cards", ReconcileMetrics(registry))

    async def reconcile(key: str) -> Result:
        if key == "bad":
            raise TerminalError("nothing helps")
        return DONE

    controller: Controller[str] = Controller("cards", reconcile, metrics=metrics)

    def ended(outcome: str) -> float | None:
        labels = {"controller": "cards", "outcome": outcome}
        return registry.get_sample_value("croupier_reconciles_total", labels)

    async with running(controller.run(asyncio.Event())):
        await until(lambda: controller._run is not None, "the controller to start")
        controller.add("good")
        controller.add("bad")
        await until(lambda: ended("done") and ended("terminal"), "both to be reconciled")

    assert registry.get_sample_value("gpu_handler_errors_total", {"handler": "cards"}) == 1
