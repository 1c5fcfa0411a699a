"""Steps of the scenario that use chart options: replicas, ModuleConfig, certificates, disabling."""

import asyncio
import json
import re
import ssl
import urllib.request
from base64 import b64decode
from typing import Any

import yaml

from croupier.admission import mark_policy
from croupier.api import kinds
from croupier.api.kinds import MODULE_CONFIGS
from croupier.kube.client.api_client import Selection
from croupier.kube.client.errors import ApiError
from croupier_lab import probe
from croupier_lab.probe import Endpoint
from tests.install import fake_cert_manager, rendering
from tests.install.chart_env import EXTENDER, LEDGER, NAMESPACE, SECOND_SCHEDULER, WEBHOOK, named
from tests.install.scenario_env import ScenarioEnv

LIMITS = "croupier-cpu-limits"
STARTS = re.compile(r"controller [\w-]+ starts")
STOPS = re.compile(r"controller [\w-]+ has stopped")


async def create_module_config(env: ScenarioEnv) -> None:
    """Create a ModuleConfig with the settings of the chart."""
    config_map = rendering.named(env.chart.objects, "ConfigMap", "croupier-settings")
    settings = yaml.safe_load(config_map["data"]["settings.yaml"])
    body = {
        "metadata": {"name": "gpu-operator"},
        "spec": {"enabled": True, "version": 1, "settings": settings},
    }
    await env.api.create(MODULE_CONFIGS, body)


async def update_module_config(env: ScenarioEnv, **spec: Any) -> None:
    await env.api.patch(MODULE_CONFIGS, "gpu-operator", {"spec": spec})


async def update_settings(env: ScenarioEnv, deadline: str) -> None:
    """Change the maintenance deadline in the ConfigMap of the chart."""
    current = await env.api.get(kinds.CONFIG_MAPS, "croupier-settings", namespace=NAMESPACE)
    settings = {**yaml.safe_load(current.data["settings.yaml"]), "maintenance": {"deadline": deadline}}
    patch = {"data": {"settings.yaml": yaml.safe_dump(settings)}}
    await env.api.patch(kinds.CONFIG_MAPS, "croupier-settings", patch, namespace=NAMESPACE)


async def all_log(env: ScenarioEnv, word: str, times: int = 1) -> None:
    async def logged() -> bool:
        return all(env.chart.log(name).count(word) >= times for name in tuple(env.chart.health))

    await env.until(logged, f"every process to log {word!r}")


async def ledger_has_stopped(env: ScenarioEnv) -> None:
    """Its controllers finish the keys that were ready when they were told to stop."""

    async def stopped() -> bool:
        logs = [env.chart.log(named(LEDGER, replica)) for replica in (1, 2)]
        return all(len(STARTS.findall(log)) == len(STOPS.findall(log)) for log in logs)

    await env.until(stopped, "the controllers of the ledger to stop")


async def kill_limits_leader(env: ScenarioEnv) -> None:
    """Kill the leader; the second replica takes over when the Lease has expired."""
    before = await leader(env, LIMITS)
    await env.chart.ready([named(LIMITS, 2)])
    env.chart.lab.kill(before)
    env.chart.health.pop(before)
    env.chart.results["leaders"] = before, await leader(env, LIMITS)


def kill_extender_pod(env: ScenarioEnv) -> None:
    """Kill an extender and its scheduler; the other replicas place the next pod."""
    for name in (SECOND_SCHEDULER, EXTENDER):
        env.chart.lab.kill(name)
    env.chart.health.pop(EXTENDER)


async def leader(env: ScenarioEnv, name: str) -> str:
    """The replica that leads."""

    async def leading() -> list[str]:
        replicas = (named(name, 1), named(name, 2))
        return [replica for replica in replicas if _leads(await metrics(env, replica))]

    (current,) = await env.until(leading, f"one {name} to lead")
    return str(current)


def _leads(text: str) -> bool:
    return any(line.startswith("croupier_leader{") and line.endswith(" 1.0") for line in text.splitlines())


async def metrics(env: ScenarioEnv, name: str) -> str:
    if (port := env.chart.health.get(name)) is None:
        return ""
    where = Endpoint(f"http://127.0.0.1:{port}/metrics")
    try:
        _, text = await asyncio.to_thread(probe.get, where)
    except OSError:
        return ""
    return text


async def renew_certificate(env: ScenarioEnv) -> None:
    """Renew the certificate as cert-manager would; both replicas must serve it."""
    await env.chart.ready([named(WEBHOOK, 2)])
    wanted = await asyncio.to_thread(fake_cert_manager.issue, env.chart)
    ports = [env.chart.ports[named(WEBHOOK, replica)] for replica in (1, 2)]

    async def serving() -> bool:
        served = [await asyncio.to_thread(fake_cert_manager.served, port) for port in ports]
        return served == [wanted.certificate] * 2

    await env.until(serving, "both webhooks to serve the new certificate")
    trusted = ssl.create_default_context(cadata=wanted.bundle.decode())

    async def answered() -> list[str]:
        patches = [await asyncio.to_thread(_patch, port, trusted) for port in ports]
        return patches if all(patches) else []

    env.chart.results["webhooks"] = await env.until(answered, "both webhooks to answer")


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


async def disable_and_enable(env: ScenarioEnv) -> None:
    """Disable Croupier: processes keep running but do nothing. Enable it: pending work continues."""
    chart = env.chart
    await update_module_config(env, enabled=False)
    await all_log(env, "Croupier was disabled")
    await ledger_has_stopped(env)
    await env.reserves("delayed", 1)
    chart.results["off"] = {
        "ready": {name: await readiness(env, name) for name in tuple(chart.health)},
        "pool": await admission_error(env, "gpu.deckhouse.io/team"),
        "share": await admission_error(env, "gpu.mps.io/percent"),
        "card": await env.until(lambda: _admitted(env, "nvidia.com/gpu"), "a pod of another plugin"),
        "extender": await asyncio.to_thread(_answers, chart.ports[EXTENDER]),
        "reservation": (await env.api.get(kinds.RESERVATIONS, "delayed", namespace="default")).status.phase,
    }
    await update_module_config(env, enabled=True)
    await all_log(env, "Croupier was enabled again")
    chart.results["on"] = await env.decided("delayed")
    chart.results["mark required"] = await env.until(lambda: mark_required(env), "the mark policy")
    await env.api.delete(kinds.RESERVATIONS, "delayed", namespace="default")
    events = await env.api.list(kinds.EVENTS, Selection("default"))
    chart.results["events"] = {
        event.reason for event in events.items if event.regarding.kind == "ModuleConfig"
    }


async def readiness(env: ScenarioEnv, name: str) -> int:
    where = Endpoint(f"http://127.0.0.1:{env.chart.health[name]}/readyz")
    status, _ = await asyncio.to_thread(probe.get, where)
    return status


async def admission_error(env: ScenarioEnv, resource: str) -> str:
    """The admission error of a pod that requests `resource`; empty if it is admitted."""
    main = {"name": "main", "image": "any", "resources": {"limits": {resource: "1"}}}
    body = {"metadata": {"name": "refused"}, "spec": {"containers": [main]}}
    try:
        await env.api.create(kinds.PODS, body, namespace="default", dry_run=True)
    except ApiError as error:
        return str(error)
    return ""


async def _admitted(env: ScenarioEnv, resource: str) -> bool:
    """The API server applies a changed policy binding after a moment."""
    return not await admission_error(env, resource)


async def mark_required(env: ScenarioEnv) -> bool:
    binding = await env.api.get(kinds.ADMISSION_POLICY_BINDINGS, mark_policy.NAME)
    return bool(binding["spec"]["validationActions"] == ["Deny"])


def _answers(port: int) -> bool:
    try:
        probe.get(Endpoint(f"http://127.0.0.1:{port}/"))
    except OSError:
        return False
    return True
