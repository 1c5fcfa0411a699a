"""Runs the queries of the dashboards on a Prometheus that scrapes the scenario.

Also serves the one metric of kube-state-metrics that the dashboards use.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from croupier.api import kinds
from croupier.core import quantity
from croupier_lab import ports, process
from tests import polling
from tests.install import prometheus
from tests.install.chart_env import NODE, ChartEnv
from tests.install.prometheus import Prometheus
from tests.install.scenario_env import TIMEOUT, ScenarioEnv

FOLDER = Path(__file__).resolve().parents[2] / "deployments/monitoring"
PANELS = [
    panel
    for name in ("dashboard.json", "dashboard-utilisation.json")
    for panel in json.loads((FOLDER / name).read_text())["panels"]
]
VARIABLES = {"$__rate_interval": "10m", "$node": ".*", "$pool": ".*"}


@asynccontextmanager
async def shown(chart: ChartEnv, env: ScenarioEnv) -> AsyncIterator[None]:
    """Store the results of all panels in `chart.shown`; does nothing if Prometheus is not installed."""
    if (binary := prometheus.program()) is None:
        yield
        return
    nodes = {"croupier-node": NODE, "croupier-market": env.market.node}
    with allocatable() as (gauge, port):
        targets = {"kube-state-metrics": [port]}
        for process_, health in chart.health.items():
            targets.setdefault(process_.removesuffix("-2"), []).append(health)
        made = prometheus.start(binary, chart.folder, targets, nodes)
        try:
            await polling.until(made.up, "Prometheus", TIMEOUT)
            yield
            await _tell(env, gauge)
            two_scrapes = f"min(timestamp(up)) > {time.time() + prometheus.SCRAPE_SECONDS}"
            await polling.until(lambda: made.ask(two_scrapes), "two scrapes of every process", TIMEOUT)
            await asyncio.to_thread(_ask, chart, made)
        finally:
            await process.stop(made.running)


@contextmanager
def allocatable() -> Iterator[tuple[Gauge, int]]:
    registry = CollectorRegistry()
    gauge = Gauge("kube_node_status_allocatable", "", ["node", "resource"], registry=registry)
    (port,) = ports.free(1, chance=random.Random())  # noqa: S311  # a port, no secret
    server, thread = start_http_server(port, "127.0.0.1", registry)
    try:
        yield gauge, port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def _tell(env: ScenarioEnv, gauge: Gauge) -> None:
    for node in (await env.api.list(kinds.NODES)).items:
        for name, text in node.status.allocatable.items():
            resource = "".join(each if each.isalnum() else "_" for each in name)
            gauge.labels(node.metadata.name, resource).set(quantity.parse(text).nanos / quantity.NANO)


def _ask(chart: ChartEnv, made: Prometheus) -> None:
    for panel in PANELS:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            chart.shown[target["expr"]] = made.ask(expression)
