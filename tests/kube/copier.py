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

from croupier.kube import client, config, events, health, logs, run, serving
from croupier.kube.client import Client, Selection
from croupier.kube.controller import Controller, Options
from croupier.kube.elector import Elector, Leadership
from croupier.kube.events import Recorder
from croupier.kube.health import Health
from croupier.kube.identity import Key
from croupier.kube.lease import Terms
from croupier.kube.metrics import Metrics
from croupier.kube.reconcile import DONE, Result
from croupier.kube.reflector import Reflector
from croupier.kube.run import Part, Process
from croupier.kube.serving import Listen
from croupier.kube.store import Store
from tests.kube.kinds import CONFIG_MAPS, ConfigMap

TERMS = Terms(duration=3, renew_deadline=2.0, every=0.25)
COPY = "-copy"

log = structlog.get_logger(__name__)


class Copier:
    """The reconciler of one leadership; its client is fenced."""

    def __init__(self, operator: "Operator", leadership: Leadership) -> None:
        self._store = operator.store
        self._api = operator.api.fenced(leadership.require)
        self._events = operator.events
        self._me = leadership.identity
        self.controller: Controller[Key] = Controller(
            "copier", self.reconcile, Options(workers=4), gauge=operator.metrics.controller("copier")
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
        return Result(again_after=0)  # immediately: only an expectation protects against a stale cache

    async def _write(self, key: Key, source: ConfigMap, copy: ConfigMap | None) -> None:
        if copy is None:
            body = {"metadata": {"name": key.name + COPY, "labels": {"role": "copy"}}, "data": source.data}
            written = await self._api.create(CONFIG_MAPS, body, namespace=key.namespace)
        else:
            version = {"resourceVersion": copy.metadata.resource_version}
            patch = {"metadata": version, "data": source.data}
            written = await self._api.patch(CONFIG_MAPS, copy.metadata.name, patch, namespace=key.namespace)
        self.controller.wrote(key, CONFIG_MAPS, written)
        about = events.about(CONFIG_MAPS, source)
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
        return Result(again_after=0.005)


def _keys(found: ConfigMap) -> list[Key]:
    role, meta = found.metadata.labels.get("role"), found.metadata
    if role == "copy":
        return [Key(meta.namespace, meta.name.removesuffix(COPY))]
    return [Key(meta.namespace, meta.name)] if role in ("source", "beat") else []


class Operator:
    def __init__(self, api: Client, metrics: Metrics, options: Any) -> None:
        self.api = api
        self.metrics = metrics
        self.store: Store[ConfigMap] = Store(CONFIG_MAPS)
        self.reflector = Reflector(api, self.store, selection=Selection(namespace=options.namespace))
        metrics.caches.add(self.store, self.reflector)
        self.events = Recorder(api, "copier", options.identity, gauge=metrics)
        self.elector = Elector(api, "copier", options.namespace, options.identity, terms=TERMS, gauge=metrics)

    def process(self) -> Process:
        return Process(
            [
                run.endless("loop measure", self.metrics.measure_loop),
                run.endless("cache", self.reflector.run),
                Part("events", self.events.run),
                Part("copier", self.lead),
            ]
        )

    async def lead(self, stop: asyncio.Event) -> None:
        await self.elector.run(lambda term: Copier(self, term).controller.run(stop, term), stop)


async def start(options: Any) -> int:
    metrics, checks = Metrics(CollectorRegistry()), Health()
    application = health.app(checks, metrics.registry)
    async with (
        client.connect(config.load(options.kubeconfig), observe=metrics.request) as api,
        serving.serve(application, Listen(serving.parse("127.0.0.1:0"))) as listener,
    ):
        log.info("serving health and metrics", address=str(listener.address))
        operator = Operator(api, metrics, options)
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
    return run.main(lambda: start(options))


if __name__ == "__main__":
    sys.exit(main())
