"""Settings that change while a process runs, on a real API server."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from croupier.admission.review import AdmissionRequest, AdmissionVerdict
from croupier.api import kinds
from croupier.api.settings import Configuration, FallbackSettings
from croupier.api.settings_state import ActiveSettings
from croupier.core.pods import disabled
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Raw, Resource
from croupier.kube.controller.events import EVENTS
from croupier.wiring.live_settings import InvalidSettings, LiveSettings, SettingsWatcher
from croupier.wiring.webhook import DisabledGate
from tests.admission.webhook_env import free_port
from tests.cli import env
from tests.cli.command import CROUPIER
from tests.polling import until, until_async

TIMEOUT = 60.0
MAPS = kinds.CONFIG_MAPS.raw
CRDS: Resource[Raw] = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, dict
)
MODULE_KIND: dict[str, Any] = {
    "metadata": {"name": "moduleconfigs.deckhouse.io"},
    "spec": {
        "group": "deckhouse.io",
        "scope": "Cluster",
        "names": {"kind": "ModuleConfig", "plural": "moduleconfigs", "singular": "moduleconfig"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                },
            }
        ],
    },
}


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as connected:
        yield connected


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    """Restore the log level after each test."""
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


def config_map(namespace: str, text: str) -> dict[str, Any]:
    meta = {"name": "croupier-settings", "namespace": namespace}
    return {"metadata": meta, "data": {"settings.yaml": text}}


@contextlib.asynccontextmanager
async def followed(following: SettingsWatcher) -> AsyncIterator[LiveSettings]:
    """The live settings of a running watcher."""
    await following.load_initial()
    stop = asyncio.Event()
    running = [asyncio.ensure_future(part.run(stop)) for part in following.components()]
    try:
        yield following.live_settings
    finally:
        stop.set()
        await asyncio.gather(*running)


def direction(live_settings: LiveSettings) -> str:
    return live_settings.configuration.fallback.direction


async def events(api: Client, namespace: str) -> dict[str, str]:
    found = await api.list(EVENTS, Selection(namespace))
    return {event["reason"]: event["note"] for event in found.items}


async def test_a_config_map_is_watched_and_invalid_settings_are_refused(api, namespace):
    await api.create(MAPS, config_map(namespace, "fallback: {direction: down}"))
    async with followed(SettingsWatcher(api, "configmap", namespace, levels=False)) as orders:
        assert direction(orders) == "down"

        await api.apply(MAPS, config_map(namespace, "fallback: {direction: up}"), force=True)
        await until(lambda: direction(orders) == "up", "the change", TIMEOUT)

        await api.apply(MAPS, config_map(namespace, "fallback: {direction: sideways}\nloud: 1"), force=True)
        refused = await until_async(
            lambda: _event(api, namespace, "SettingsRefused"), "the Event of the refusal", TIMEOUT
        )
        assert "fallback.direction: 'sideways' is not one of" in refused
        assert "loud: there is no such setting" in refused
        assert direction(orders) == "up"

        await api.apply(MAPS, config_map(namespace, "capacityManager: CRD"), force=True)
        later = await until_async(
            lambda: _event(api, namespace, "SettingsNeedRestart"), "the Event of the needed restart", TIMEOUT
        )
        assert later.endswith("restart of the processes: capacityManager")

        await api.delete(MAPS, "croupier-settings", namespace=namespace)
        await api.create(MAPS, config_map(namespace, "logLevel: Error"))
        await until(lambda: orders.configuration.log_level == "Error", "the new one to be taken", TIMEOUT)


async def _event(api: Client, namespace: str, reason: str) -> str:
    return (await events(api, namespace)).get(reason, "")


async def test_invalid_settings_prevent_the_start(api, namespace):
    await api.create(MAPS, config_map(namespace, "logLevel: Loud\ninventory: {resyncPeriod: soon}"))
    with pytest.raises(InvalidSettings, match=r"inventory.resyncPeriod: .*; logLevel: 'Loud' is not one of"):
        await SettingsWatcher(api, "configmap", namespace).load_initial()


async def test_without_settings_the_defaults_apply(api, namespace):
    assert await SettingsWatcher(api, "configmap", namespace).load_initial() == ActiveSettings()
    assert await SettingsWatcher(api, "module", namespace).load_initial() == ActiveSettings()


@pytest_asyncio.fixture
async def modules(api: Client) -> AsyncIterator[None]:
    """The ModuleConfig CRD with an enabled gpu-operator module."""
    await api.create(CRDS, MODULE_KIND)
    await until_async(lambda: _can_make(api), "the kind to be served", TIMEOUT)
    yield
    await api.delete(CRDS, MODULE_KIND["metadata"]["name"])
    await until_async(lambda: _is_gone(api), "the kind to go", TIMEOUT)


async def _is_gone(api: Client) -> bool:
    try:
        await api.get(CRDS, MODULE_KIND["metadata"]["name"])
    except NotFound:
        return True
    return False


async def switch(api: Client, on: bool, **wanted: Any) -> None:
    await api.apply(kinds.MODULE_CONFIGS, _module(enabled=on, settings=wanted), force=True)


@pytest.mark.usefixtures("modules")
async def test_a_module_is_disabled_and_enabled(api, namespace):
    async with followed(SettingsWatcher(api, "module", namespace, levels=False)) as orders:
        assert orders.now == ActiveSettings()
        await switch(api, on=False)
        await until(lambda: orders.off, "the switch off", TIMEOUT)
        note = await until_async(lambda: _event(api, "default", "SwitchedOff"), "the Event", TIMEOUT)
        assert note == f"disabled: {disabled.EFFECT}"
        await switch(api, on=True)
        await until(lambda: not orders.off, "the switch on", TIMEOUT)


@dataclass(frozen=True)
class Running:
    """A Croupier process and its health address."""

    process: asyncio.subprocess.Process
    health: int

    async def is_ready(self) -> bool:
        assert self.process.returncode is None, "it ended"
        try:
            async with aiohttp.request("GET", f"http://127.0.0.1:{self.health}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False


@contextlib.asynccontextmanager
async def started(cluster: Any, namespace: str, *command: str) -> AsyncIterator[Running]:
    health = free_port()
    places = (f"--kubeconfig={cluster.kubeconfig}", f"--lease-namespace={namespace}")
    process = await asyncio.create_subprocess_exec(
        *CROUPIER, *command, "--settings=module", *places, f"--health=127.0.0.1:{health}"
    )
    try:
        yield Running(process, health)
    finally:
        process.terminate()
        assert await asyncio.wait_for(process.wait(), TIMEOUT) == 0


@pytest.mark.usefixtures("modules", "clean_cluster")
async def test_processes_pause_while_disabled_and_apply_changes_without_a_restart(api, cluster, namespace):
    port = free_port()
    await switch(api, on=False)
    inventory, placing = ("manager", "--controllers=inventory"), ("extender", f"--listen=127.0.0.1:{port}")
    async with (
        started(cluster, namespace, *inventory) as manager,
        started(cluster, namespace, *placing) as extender,
    ):
        await until_async(manager.is_ready, "the manager to be ready", TIMEOUT)
        await until_async(extender.is_ready, "the extender to be ready though it is off", TIMEOUT)
        await env.node(api, f"{namespace}-1")
        assert not await _listens(port)

        await switch(api, on=True)
        await until_async(lambda: _managed(api, f"{namespace}-1", True), "the cards to be seen", TIMEOUT)
        await until_async(lambda: _listens(port), "the extender to listen", TIMEOUT)

        await switch(api, on=True, managedNodes={"enabledByDefault": False})
        await until_async(
            lambda: _managed(api, f"{namespace}-1", False), "the cards to be left alone", TIMEOUT
        )
        await switch(api, on=False)
        await until_async(lambda: _deaf(port), "the extender to rest", TIMEOUT)
        assert await extender.is_ready()
        assert await manager.is_ready()


async def _managed(api: Client, node: str, wanted: bool) -> bool:
    cards = [card for card in (await api.list(kinds.GPU_DEVICES)).items if card.status.node_name == node]
    return bool(cards) and all(card.status.managed is wanted for card in cards)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def _deaf(port: int) -> bool:
    return not await _listens(port)


class FixedAnswer:
    def __init__(self, warning: str) -> None:
        self._verdict = AdmissionVerdict(warnings=(warning,))

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        return self._verdict


def test_a_disabled_webhook_asks_the_other_decider():
    pod: Any = None
    orders = LiveSettings(ActiveSettings(enabled=False))
    gate = DisabledGate(FixedAnswer("on"), orders, FixedAnswer("off"))
    assert gate.mutate(pod).warnings == ("off",)
    orders.update(ActiveSettings())
    assert gate.mutate(pod).warnings == ("on",)


def _module(**spec: Any) -> dict[str, Any]:
    kind = kinds.MODULE_CONFIGS
    about = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "gpu-operator"}}
    return {**about, "spec": {"version": 1, **spec}}


async def _can_make(api: Client) -> bool:
    try:
        await api.apply(kinds.MODULE_CONFIGS, _module(enabled=True), force=True)
    except NotFound:
        return False
    return True


async def test_a_file_is_watched_even_if_it_is_invalid_or_missing_for_a_while(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("logLevel: Warning")
    no_api: Any = None
    async with followed(SettingsWatcher(no_api, path, "any", poll_interval=0.01)) as orders:
        assert orders.configuration.log_level == "Warning"
        assert logging.getLogger().level == logging.WARNING
        path.unlink()
        path.write_text("logLevel: [")
        path.write_text("logLevel: Loud")
        path.write_text("logLevel: Error")
        await until(lambda: orders.configuration.log_level == "Error", "the file to be read", TIMEOUT)
        assert logging.getLogger().level == logging.ERROR


class Worker:
    """Records the settings with which it runs."""

    def __init__(self) -> None:
        self.shifts: list[str] = []
        self.at_work = False

    async def work(self, stop: asyncio.Event, today: Configuration) -> None:
        self.shifts.append(today.fallback.direction)
        self.at_work = True
        await stop.wait()
        self.at_work = False


async def test_work_restarts_when_its_settings_change():
    orders, worker, stop = LiveSettings(), Worker(), asyncio.Event()
    working = asyncio.create_task(
        orders.run_with(worker.work, stop, lambda configuration: configuration.fallback)
    )
    await until(lambda: worker.shifts == ["nearest"])

    orders.update(ActiveSettings(Configuration(log_level="Error")))
    for _ in range(50):  # enough event-loop iterations for a restart
        await asyncio.sleep(0)
    assert worker.shifts == ["nearest"]
    changed = settings_with("up")
    orders.update(ActiveSettings(changed))
    await until(lambda: worker.shifts == ["nearest", "up"], "the change that it minds, and no other")

    orders.update(ActiveSettings(changed, enabled=False))
    await until(lambda: not worker.at_work)
    orders.update(ActiveSettings(settings_with("down"), enabled=False))
    orders.update(ActiveSettings(settings_with("down")))
    await until(lambda: worker.shifts == ["nearest", "up", "down"])

    stop.set()
    await working
    assert not worker.at_work


async def test_a_crash_of_the_work_is_raised():
    async def work(stop: asyncio.Event, today: Configuration) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await LiveSettings().run_with(work, asyncio.Event())


async def test_work_is_cancelled_with_its_caller():
    worker = Worker()
    working = asyncio.create_task(LiveSettings().run_with(worker.work, asyncio.Event()))
    await until(lambda: worker.at_work)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


def settings_with(direction: Any) -> Configuration:
    return Configuration(fallback=FallbackSettings(direction=direction))
