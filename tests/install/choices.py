"""The chart's other choices at work: two of every process, settings of a ModuleConfig, on and off again."""

import asyncio
import json
import ssl
import urllib.request
from base64 import b64decode
from typing import Any

import yaml

from croupier.api import kinds
from croupier.kube.client import Selection
from croupier.kube.errors import ApiError
from croupier.lab import probe
from croupier.lab.probe import Endpoint
from croupier.wiring.settings import MODULE_CONFIGS
from tests.install import issuer, rendering
from tests.install.a_day import Day
from tests.install.town import EXTENDER, NAMESPACE, PLACER, WEBHOOK, named

LIMITS = "croupier-cpu-limits"


async def a_module_config_comes(day: Day) -> None:
    """With the settings that the chart was given."""
    found = rendering.named(day.town.objects, "ConfigMap", "croupier-settings")
    settings = yaml.safe_load(found["data"]["settings.yaml"])
    body = {
        "metadata": {"name": "gpu-operator"},
        "spec": {"enabled": True, "version": 1, "settings": settings},
    }
    await day.api.create(MODULE_CONFIGS, body)


async def module_says(day: Day, **spec: Any) -> None:
    await day.api.patch(MODULE_CONFIGS, "gpu-operator", {"spec": spec})


async def settings_say(day: Day, deadline: str) -> None:
    """Of the chart's ConfigMap."""
    found = await day.api.get(kinds.CONFIG_MAPS, "croupier-settings", namespace=NAMESPACE)
    said = {**yaml.safe_load(found.data["settings.yaml"]), "maintenance": {"deadline": deadline}}
    patch = {"data": {"settings.yaml": yaml.safe_dump(said)}}
    await day.api.patch(kinds.CONFIG_MAPS, "croupier-settings", patch, namespace=NAMESPACE)


async def everybody_says(day: Day, word: str, times: int = 1) -> None:
    async def said() -> bool:
        return all(day.town.log(name).count(word) >= times for name in tuple(day.town.health))

    await day.until(said, f"every process to say {word!r}")


async def the_leader_of_limits_crashes(day: Day) -> None:
    """Nobody else does its work until its Lease is over; the second one then does."""
    before = await leader(day, LIMITS)
    await day.town.ready([named(LIMITS, 2)])
    day.town.lab.kill(before)
    day.town.health.pop(before)
    day.town.told["leaders"] = before, await leader(day, LIMITS)


def the_pod_of_an_extender_is_lost(day: Day) -> None:
    """With the scheduler in it, which leads: the other two place the next pod, once its Lease is over."""
    for one in (PLACER, EXTENDER):
        day.town.lab.kill(one)
    day.town.health.pop(EXTENDER)


async def leader(day: Day, name: str) -> str:
    """Which of the two works."""

    async def leading() -> list[str]:
        return [one for one in (named(name, 1), named(name, 2)) if _leads(await figures(day, one))]

    (found,) = await day.until(leading, f"one {name} to lead")
    return str(found)


def _leads(text: str) -> bool:
    return any(one.startswith("croupier_leader{") and one.endswith(" 1.0") for one in text.splitlines())


async def figures(day: Day, name: str) -> str:
    if (port := day.town.health.get(name)) is None:
        return ""
    where = Endpoint(f"http://127.0.0.1:{port}/metrics")
    try:
        _, text = await asyncio.to_thread(probe.get, where)
    except OSError:
        return ""
    return text


async def a_certificate_is_renewed(day: Day) -> None:
    """By somebody else; both replicas serve it, and both go on answering."""
    await day.town.ready([named(WEBHOOK, 2)])
    wanted = await asyncio.to_thread(issuer.issue, day.town)
    ports = [day.town.ports[named(WEBHOOK, one)] for one in (1, 2)]

    async def serving() -> bool:
        served = [await asyncio.to_thread(issuer.served, one) for one in ports]
        return served == [wanted.certificate] * 2

    await day.until(serving, "both webhooks to serve the new certificate")
    trusted = ssl.create_default_context(cadata=wanted.bundle.decode())

    async def answered() -> list[str]:
        said = [await asyncio.to_thread(_patch, one, trusted) for one in ports]
        return said if all(said) else []

    day.town.told["webhooks"] = await day.until(answered, "both webhooks to be at work")


def _patch(port: int, trusted: ssl.SSLContext) -> str:
    """What one replica would change in a pod that asks for a card: nothing while all is switched off."""
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


async def switched_off_and_on(day: Day) -> None:
    """Nobody ends, nobody works; afterwards everything goes on, also what was asked meanwhile."""
    town = day.town
    await module_says(day, enabled=False)
    await everybody_says(day, "switched off")
    await day.reserves("patient", 1)
    town.told["off"] = {
        "ready": {name: await readiness(day, name) for name in tuple(town.health)},
        "pool": await refusal(day, "gpu.deckhouse.io/team"),
        "card": await refusal(day, "nvidia.com/gpu"),
        "extender": await asyncio.to_thread(_answers, town.ports[EXTENDER]),
        "reservation": (await day.api.get(kinds.RESERVATIONS, "patient", namespace="default")).status.phase,
    }
    await module_says(day, enabled=True)
    await everybody_says(day, "at work again")
    town.told["on"] = await day.decided("patient")
    await day.api.delete(kinds.RESERVATIONS, "patient", namespace="default")
    events = await day.api.list(kinds.EVENTS, Selection("default"))
    town.told["events"] = {one.reason for one in events.items if one.regarding.kind == "ModuleConfig"}


async def readiness(day: Day, name: str) -> int:
    where = Endpoint(f"http://127.0.0.1:{day.town.health[name]}/readyz")
    status, _ = await asyncio.to_thread(probe.get, where)
    return status


async def refusal(day: Day, resource: str) -> str:
    """What is said to somebody who creates a pod with it."""
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
