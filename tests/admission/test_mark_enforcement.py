"""A disabled Croupier leaves pods of another device plugin alone, on a real API server."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest_asyncio

from croupier.admission import mark_policy
from croupier.admission.mark_enforcement import MarkEnforcement
from croupier.api import kinds
from croupier.api.settings_state import ActiveSettings
from croupier.core.pods.request_parser import GPU
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import Forbidden
from croupier.wiring.live_settings import LiveSettings
from croupier_lab.cluster import Cluster
from tests.admission.test_mark_policy import KINDS, asking, create
from tests.polling import until_async


@dataclass
class EnforcementEnv:
    api: Client
    namespace: str
    live_settings: LiveSettings

    async def admits(self) -> bool:
        try:
            await create(self.api, asking({GPU: "1"}), self.namespace)
        except Forbidden:
            return False
        return True

    async def refuses(self) -> bool:
        return not await self.admits()

    async def actions(self) -> list[str]:
        binding = await self.api.get(kinds.ADMISSION_POLICY_BINDINGS, mark_policy.NAME)
        actions: list[str] = binding["spec"]["validationActions"]
        return actions


@pytest_asyncio.fixture
async def env(api: Client, cluster: Cluster, namespace: str) -> AsyncIterator[EnforcementEnv]:
    """The policy for one namespace, and the controller of its binding."""
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    for document in mark_policy.documents(here):
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
    store = Store(kinds.ADMISSION_POLICY_BINDINGS)
    reflector = Reflector(api, store, selection=Selection(fields=f"metadata.name={mark_policy.NAME}"))
    live_settings, stop = LiveSettings(), asyncio.Event()
    enforcement = MarkEnforcement(Informer(store, reflector), api, disabled=lambda: live_settings.off)
    live_settings.subscribe(enforcement.settings_changed)
    watching = asyncio.create_task(reflector.run())
    working = asyncio.create_task(enforcement.controller.run(stop))
    yield EnforcementEnv(api, namespace, live_settings)
    stop.set()
    await working
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    cluster.kubectl("delete", KINDS, mark_policy.NAME, "--ignore-not-found")


async def test_the_mark_is_not_required_while_croupier_is_disabled(env: EnforcementEnv):
    await until_async(env.refuses, "the policy to be enforced")

    env.live_settings.update(ActiveSettings(enabled=False))
    await until_async(env.admits, "a pod of another device plugin")

    env.live_settings.update(ActiveSettings())
    await until_async(env.refuses, "the mark to be required again")
    assert await env.actions() == ["Deny"]


async def test_an_installation_over_a_disabled_one_does_not_enforce_the_mark(env: EnforcementEnv):
    env.live_settings.update(ActiveSettings(enabled=False))
    await until_async(env.admits, "a pod of another device plugin")
    patch = {"spec": {"validationActions": ["Deny"]}}
    await env.api.patch(kinds.ADMISSION_POLICY_BINDINGS, mark_policy.NAME, patch)

    async def audits() -> bool:
        return await env.actions() == ["Audit"]

    await until_async(audits, "the binding to be set again")
