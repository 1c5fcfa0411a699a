"""Steps of the scenario that use chart options: replicas, ModuleConfig, certificates, disabling."""

import asyncio
import json
import ssl
import urllib.request
from base64 import b64decode
from typing import Any

import yaml

from croupier.api import kinds
from croupier.kube.client.api_client import Selection
from croupier.kube.client.errors import ApiError
from croupier.wiring.live_settings import MODULE_CONFIGS
from croupier_lab import probe
from croupier_lab.probe import Endpoint
from tests.install import fake_cert_manager, rendering
from tests.install.chart_env import EXTENDER, NAMESPACE, SECOND_SCHEDULER, WEBHOOK, named
from tests.install.scenario_env import ScenarioEnv

LIMITS = "croupier-cpu-limits"


async def create_module_config(day: ScenarioEnv) -> None:
    """Create a ModuleConfig with the settings of the chart."""
    config_map = rendering.named(day.town.objects, "ConfigMap", "croupier-settings")
    settings = yaml.safe_load(config_map["data"]["settings.yaml"])
    body = {
        "metadata": {"name": "gpu-operator"},
        "spec": {"enabled": True, "version": 1, "settings": settings},
    }
    await day.api.create(MODULE_CONFIGS, body)


async def update_module_config(day: ScenarioEnv, **spec: Any) -> None:
    await day.api.patch(MODULE_CONFIGS, "gpu-operator", {"spec": spec})


async def update_settings(day: ScenarioEnv, deadline: str) -> None:
    """Change the maintenance deadline in the ConfigMap of the chart."""
    current = await day.api.get(kinds.CONFIG_MAPS, "croupier-settings", namespace=NAMESPACE)
    settings = {**yaml.safe_load(current.data["settings.yaml"]), "maintenance": {"deadline": deadline}}
    patch = {"data": {"settings.yaml": yaml.safe_dump(settings)}}
    await day.api.patch(kinds.CONFIG_MAPS, "croupier-settings", patch, namespace=NAMESPACE)


async def all_log(day: ScenarioEnv, word: str, times: int = 1) -> None:
    async def logged() -> bool:
        return all(day.town.log(name).count(word) >= times for name in tuple(day.town.health))

    await day.until(logged, f"every process to log {word!r}")


async def kill_limits_leader(day: ScenarioEnv) -> None:
    """Kill the leader; the second replica takes over when the Lease has expired."""
    before = await leader(day, LIMITS)
    await day.town.ready([named(LIMITS, 2)])
    day.town.lab.kill(before)
    day.town.health.pop(before)
    day.town.results["leaders"] = before, await leader(day, LIMITS)


def kill_extender_pod(day: ScenarioEnv) -> None:
    """Kill an extender and its scheduler; the other replicas place the next pod."""
    for name in (SECOND_SCHEDULER, EXTENDER):
        day.town.lab.kill(name)
    day.town.health.pop(EXTENDER)


async def leader(day: ScenarioEnv, name: str) -> str:
    """The replica that leads."""

    async def leading() -> list[str]:
        replicas = (named(name, 1), named(name, 2))
        return [replica for replica in replicas if _leads(await metrics(day, replica))]

    (current,) = await day.until(leading, f"one {name} to lead")
    return str(current)


def _leads(text: str) -> bool:
    return any(line.startswith("croupier_leader{") and line.endswith(" 1.0") for line in text.splitlines())


async def metrics(day: ScenarioEnv, name: str) -> str:
    if (port := day.town.health.get(name)) is None:
        return ""
    where = Endpoint(f"http://127.0.0.1:{port}/metrics")
    try:
        _, text = await asyncio.to_thread(probe.get, where)
    except OSError:
        return ""
    return text


async def renew_certificate(day: ScenarioEnv) -> None:
    """Renew the certificate as cert-manager would; both replicas must serve it."""
    await day.town.ready([named(WEBHOOK, 2)])
    wanted = await asyncio.to_thread(fake_cert_manager.issue, day.town)
    ports = [day.town.ports[named(WEBHOOK, replica)] for replica in (1, 2)]

    async def serving() -> bool:
        served = [await asyncio.to_thread(fake_cert_manager.served, port) for port in ports]
        return served == [wanted.certificate] * 2

    await day.until(serving, "both webhooks to serve the new certificate")
    trusted = ssl.create_default_context(cadata=wanted.bundle.decode())

    async def answered() -> list[str]:
        patches = [await asyncio.to_thread(_patch, port, trusted) for port in ports]
        return patches if all(patches) else []

    day.town.results["webhooks"] = await day.until(answered, "both webhooks to answer")


def _patch(port: int, trusted: ssl.SSLContext) -> str:
    """The patch of one replica for a pod that requests a card; empty while Croupier is disabled."""
    container = {"name": "main", "image": "any", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {"containers": [container]},
    }
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "default",
            "object": pod,
        },
    }
    headers = {"content-type": "application/json"}
    url = f"https://127.0.0.1:{port}/mutate"
    asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=60, context=trusted) as answer:  # noqa: S310  # on loopback
        return b64decode(json.load(answer)["response"].get("patch", "")).decode()


async def disable_and_enable(day: ScenarioEnv) -> None:
    """Disable Croupier: processes keep running but do nothing. Enable it: pending work continues."""
    town = day.town
    await update_module_config(day, enabled=False)
    await all_log(day, "settings: disabled")
    await day.reserves("delayed", 1)
    town.results["off"] = {
        "ready": {name: await readiness(day, name) for name in tuple(town.health)},
        "pool": await admission_error(day, "gpu.deckhouse.io/team"),
        "card": await admission_error(day, "nvidia.com/gpu"),
        "extender": await asyncio.to_thread(_answers, town.ports[EXTENDER]),
        "reservation": (await day.api.get(kinds.RESERVATIONS, "delayed", namespace="default")).status.phase,
    }
    await update_module_config(day, enabled=True)
    await all_log(day, "settings: enabled again")
    town.results["on"] = await day.decided("delayed")
    await day.api.delete(kinds.RESERVATIONS, "delayed", namespace="default")
    events = await day.api.list(kinds.EVENTS, Selection("default"))
    town.results["events"] = {
        event.reason for event in events.items if event.regarding.kind == "ModuleConfig"
    }


async def readiness(day: ScenarioEnv, name: str) -> int:
    where = Endpoint(f"http://127.0.0.1:{day.town.health[name]}/readyz")
    status, _ = await asyncio.to_thread(probe.get, where)
    return status


async def admission_error(day: ScenarioEnv, resource: str) -> str:
    """The admission error of a pod that requests `resource`; empty if it is admitted."""
    main = {"name": "main", "image": "any", "resources": {"limits": {resource: "1"}}}
    body = {"metadata": {"name": "refused"}, "spec": {"containers": [main]}}
    try:
        await day.api.create(kinds.PODS, body, namespace="default", dry_run=True)
    except ApiError as error:
        return str(error)
    return ""


def _answers(port: int) -> bool:
    try:
        probe.get(Endpoint(f"http://127.0.0.1:{port}/"))
    except OSError:
        return False
    return True
