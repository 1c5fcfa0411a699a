"""Failed reconciles are counted by handler, in addition to the metrics of each controller."""

import asyncio

from prometheus_client import CollectorRegistry

from croupier.controllers.handler_metrics import HandlerErrors
from croupier.kube.controller import Controller
from croupier.kube.metrics import Metrics
from croupier.kube.reconcile import DONE, Result, Terminal
from tests.controllers.world import running
from tests.kube.waiting import until


async def test_failures_are_counted_and_successes_are_not():
    registry = CollectorRegistry()
    gauge = HandlerErrors(registry).of("cards", Metrics(registry).controller("cards"))

    async def reconcile(key: str) -> Result:
        if key == "bad":
            raise Terminal("nothing helps")
        return DONE

    controller: Controller[str] = Controller("cards", reconcile, gauge=gauge)

    def ended(outcome: str) -> float | None:
        labels = {"controller": "cards", "outcome": outcome}
        return registry.get_sample_value("croupier_reconciles_total", labels)

    async with running(controller.run(asyncio.Event())):
        await until(lambda: controller._shift is not None, "the controller to start")
        controller.add("good")
        controller.add("bad")
        await until(lambda: ended("done") and ended("terminal"), "both to be reconciled")

    assert registry.get_sample_value("gpu_handler_errors_total", {"handler": "cards"}) == 1
