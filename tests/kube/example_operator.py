"""A complete operator in one file, which tests run as a separate process.

It copies every ConfigMap labelled `role=source`, and increments a counter in those
labelled `role=beat`. Each increment is two writes, so that a process frozen between
them would write stale data if it simply continued.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.identity import Key
from croupier.kube.controller import events
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.leader_election import Elector, Leadership
from croupier.kube.controller.lease import LeaseTimings
from croupier.kube.controller.reconcile import DONE, Result
from croupier.kube.serving import component_runner, health, http_server, logs
from croupier.kube.serving.component_runner import Component, ComponentRunner
from croupier.kube.serving.health import HealthChecks
from croupier.kube.serving.http_server import ListenOptions
from croupier.kube.serving.metrics import ProcessMetrics
from tests.kube.builders import CONFIG_MAPS, ConfigMap

TIMINGS = LeaseTimings(duration=3, renew_deadline=2.0, every=0.25)
COPY = "-copy"

log = structlog.get_logger(__name__)


class CopyController:
    """The reconciler of one leadership; its client is fenced."""

    def __init__(self, operator: "ExampleOperator", leadership: Leadership) -> None:
        self._store = operator.store
        self._api = operator.api.fenced(leadership.require)
        self._events = operator.events
        self._me = leadership.identity
        self.controller: Controller[Key] = Controller(
            "copier",
            self.reconcile,
            ControllerOptions(workers=4),
            metrics=operator.metrics.controller("copier"),
        )
        self.controller.watch(operator.store, operator.reflector, _keys)

    async def reconcile(self, key: Key) -> Result:
        found = self._store.get(key)
        copy = self._store.get(Key(key.namespace, key.name + COPY))
        if found is None:
            return await self._remove(key, copy)
        if found.metadata.labels.get("role") == "beat":
            return await self._beat(key, found)
        if copy is not None and copy.data == found.data:
            return DONE
        await self._write(key, found, copy)
        return Result(requeue_after=0)  # immediately: only an expectation protects against a stale cache

    async def _write(self, key: Key, source: ConfigMap, copy: ConfigMap | None) -> None:
        if copy is None:
            body = {"metadata": {"name": key.name + COPY, "labels": {"role": "copy"}}, "data": source.data}
            written = await self._api.create(CONFIG_MAPS, body, namespace=key.namespace)
        else:
            version = {"resourceVersion": copy.metadata.resource_version}
            patch = {"metadata": version, "data": source.data}
            written = await self._api.patch(CONFIG_MAPS, copy.metadata.name, patch, namespace=key.namespace)
        self.controller.wrote(key, CONFIG_MAPS, written)
        about = events.reference_to(CONFIG_MAPS, source)
        self._events.record(about, "Copied", f"copied to {written.metadata.name}", action="Copy")

    async def _remove(self, key: Key, copy: ConfigMap | None) -> Result:
        if copy is not None:
            await self._api.delete(CONFIG_MAPS, copy.metadata.name, namespace=key.namespace)
            self.controller.deleted(key, CONFIG_MAPS, copy)
        return DONE

    async def _beat(self, key: Key, found: ConfigMap) -> Result:
        count = str(int(found.data.get("count", "0")) + 1)
        for step in ("begun", "ended"):
            begun = str(time.monotonic())  # all processes of a machine share this clock
            patch = {"data": {"by": self._me, "count": count, "step": step, "begun": begun}}
            written = await self._api.patch(CONFIG_MAPS, key.name, patch, namespace=key.namespace)
            self.controller.wrote(key, CONFIG_MAPS, written)
        return Result(requeue_after=0.005)


def _keys(found: ConfigMap) -> list[Key]:
    role, meta = found.metadata.labels.get("role"), found.metadata
    if role == "copy":
        return [Key(meta.namespace, meta.name.removesuffix(COPY))]
    return [Key(meta.namespace, meta.name)] if role in ("source", "beat") else []


class ExampleOperator:
    def __init__(self, api: Client, metrics: ProcessMetrics, options: Any) -> None:
        self.api = api
        self.metrics = metrics
        self.store: Store[ConfigMap] = Store(CONFIG_MAPS)
        self.reflector = Reflector(api, self.store, selection=Selection(namespace=options.namespace))
        metrics.caches.add(self.store, self.reflector)
        self.events = EventRecorder(api, "copier", options.identity, metrics=metrics.events)
        self.elector = Elector(
            api, "copier", options.namespace, options.identity, terms=TIMINGS, metrics=metrics.leader
        )

    def process(self) -> ComponentRunner:
        return ComponentRunner(
            [
                component_runner.until_cancelled("loop measure", self.metrics.measure_loop),
                component_runner.until_cancelled("cache", self.reflector.run),
                Component("events", self.events.run),
                Component("copier", self.lead),
            ]
        )

    async def lead(self, stop: asyncio.Event) -> None:
        await self.elector.run(lambda term: CopyController(self, term).controller.run(stop, term), stop)


async def start(options: Any) -> int:
    metrics, checks = ProcessMetrics(CollectorRegistry()), HealthChecks()
    application = health.app(checks, metrics.registry)
    async with (
        api_client.connect(config.load(options.kubeconfig), observe=metrics.request) as api,
        http_server.serve(application, ListenOptions(http_server.parse("127.0.0.1:0"))) as listener,
    ):
        log.info("serving health and metrics", address=str(listener.address))
        operator = ExampleOperator(api, metrics, options)
        process = operator.process()
        checks.ready["cache"] = lambda: None if operator.reflector.has_synced else "not synced yet"
        checks.ready["process"] = lambda: "stopping" if process.stopping else None
        return await process.run()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--identity", required=True)
    options = parser.parse_args()
    logs.setup(form="json")
    return component_runner.main(lambda: start(options))


if __name__ == "__main__":
    sys.exit(main())
