"""Fault injection: crashes, conflicting writes, and unusual extender calls."""

import asyncio
import contextlib
import json
import urllib.request
from datetime import timedelta
from typing import Any

from croupier.api import kinds
from croupier.api.mps import allocation
from croupier.capacity.crd import CRDCapacityManager
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.kube.client.api_client import EVERYTHING
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Raw
from tests.controllers.ledger_env import watched
from tests.install import rbac
from tests.install.chart_env import EXTENDER, LEDGER, NAMESPACE, NODE, named
from tests.install.rbac import Permission
from tests.install.scenario_env import AT_ONCE, ScenarioEnv

UNBOUND = "could not be bound"
READ = "get nodereservations.mps.nvidia.com"


async def crash_between_hold_and_bind(env: ScenarioEnv, *, opens: bool) -> None:
    """Simulate a crash between hold and Binding: the ledger has the hold, the pod is pending."""
    spec = {"schedulerName": "no-such-scheduler", "containers": [{"name": "main", "image": "any"}]}
    pod = await env.api.create(
        kinds.PODS, {"metadata": {"name": "crashed"}, "spec": spec}, namespace="default"
    )
    async with watched(env.api, kinds.NODE_RESERVATIONS, EVERYTHING) as seen:
        book = CRDCapacityManager(env.api, seen.store, ttl=timedelta(seconds=1))
        if opens:
            await book.open(NODE, Ledger(NODE, (LedgerCard(f"{NODE}-before", 0),)))
        await book.reserve(f"default/crashed/{pod.metadata.uid}", NODE, 1, 50)
        await book.finish()


async def wait_until_fenced(env: ScenarioEnv) -> None:
    async def fenced() -> bool:
        pod = await env.api.get(kinds.PODS, "crashed", namespace="default")
        return allocation.HOLD_EXPIRED in pod.metadata.annotations

    await env.until(fenced, "the hold of the crashed process to expire")
    await env.ends("crashed")


async def remove_finalizer(env: ScenarioEnv, leader: str) -> None:
    """Remove a finalizer while the leader is frozen: the Reservation is deleted, but its hold remains."""
    account = leader.removesuffix("-2")
    await env.reserves("torn", 1)
    assert await env.decided("torn") == "Reserved"
    env.chart.lab.freeze(leader)
    try:
        patch: Raw = {"metadata": {"finalizers": []}}
        await env.api.patch(kinds.RESERVATIONS, "torn", patch, namespace="default")
        with contextlib.suppress(NotFound):
            await env.api.delete(kinds.RESERVATIONS, "torn", namespace="default")
    finally:
        env.chart.lab.thaw(leader)

    witness = Witness(env)

    async def read() -> bool:
        return witness.saw(account, "get reservations.mps.nvidia.com")

    await env.until(read, "the leader to look up the deleted Reservation")


async def damage_certificate(env: ScenarioEnv) -> None:
    broken = {"data": {"tls.crt": "YnJva2Vu"}}
    name = "croupier-webhook-tls"
    before = await env.api.patch(kinds.SECRETS, name, broken, namespace=NAMESPACE)

    async def repaired() -> bool:
        found = await env.api.get(kinds.SECRETS, name, namespace=NAMESPACE)
        return found.data["tls.crt"] != before.data["tls.crt"]

    await env.until(repaired, "the certificate to be repaired")


async def call_second_extender(env: ScenarioEnv, extender: str) -> None:
    """Ask an extender to bind an unknown, gated pod: it fails and releases the card."""
    await env.pod("gated", "nvidia.com/gpu", schedulingGates=[{"name": "example.com/later"}])
    pod = await env.api.get(kinds.PODS, "gated", namespace="default")
    asked = {
        "PodName": "gated",
        "PodNamespace": "default",
        "PodUID": pod.metadata.uid,
        "Node": NODE,
    }
    where = f"http://127.0.0.1:{env.chart.ports[extender]}/bind"
    env.chart.results["gated"] = (await asyncio.to_thread(_post, where, asked))["Error"]
    await env.ends("gated")


def _post(url: str, body: dict[str, str]) -> Any:
    headers = {"content-type": "application/json"}
    asked = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310  # on loopback
    with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310  # as above
        return json.load(answer)


async def others_write_the_ledger(env: ScenarioEnv) -> None:
    """Write the ledger until the leader and an extender have both read it after a conflict."""
    witness = Witness(env)
    for count in range(100_000):
        if all(witness.saw(who, READ) for who in (LEDGER, EXTENDER)):
            env.note(f"{count} writes of the ledger until both had read it again")
            return
        note = {"metadata": {"annotations": {"example.com/touched": str(count)}}}
        await env.api.patch(kinds.NODE_RESERVATIONS, NODE, note)


async def work_for(env: ScenarioEnv, others: "asyncio.Task[None]") -> None:
    """Create reservations and call the extender until `others` is done."""
    async with asyncio.timeout(90):
        for count in range(1000):
            if others.done() and UNBOUND in env.chart.results.get("gated", ""):
                break
            await env.reserves(f"again-{count}", 1)
            await call_second_extender(env, named(EXTENDER, 2))
            await env.decided(f"again-{count}")
            await env.api.delete(kinds.RESERVATIONS, f"again-{count}", namespace="default", how=AT_ONCE)
        await others


class Witness:
    """Follows the audit log of the current phase."""

    def __init__(self, env: ScenarioEnv) -> None:
        self._path = env.chart.audit
        self._at = env.chart.parts[-1].since
        self._seen: dict[str, set[str]] = {}

    def saw(self, account: str, what: str) -> bool:
        """Whether the account sent this request; `what` has no names and namespaces."""
        with self._path.open("rb") as log:
            log.seek(self._at)
            whole, end, _ = log.read().rpartition(b"\n")
        self._at += len(whole) + len(end)
        for who, deeds in rbac.requests_by_account(whole.decode(), NAMESPACE).items():
            plain = (Permission(deed.right.group, deed.right.resource, deed.right.verb) for deed in deeds)
            self._seen.setdefault(who, set()).update(map(str, plain))
        return what in self._seen.get(account, ())
