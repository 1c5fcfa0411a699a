"""Flow environments with one node and one namespace each: their set-up and their final states.

The set-up writes raw objects and does not use the code under test.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from croupier.api import kinds
from croupier.core.ledger.ledger import Ledger
from croupier.kube.client.api_client import Client, DeleteOptions
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Raw, Resource
from tests.proof import facts
from tests.proof.flow_process import POD, RESERVATION
from tests.proof.invariants import LedgerRevision, read

ACCOUNTS: Resource[Raw] = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, dict)
CARDS, PERCENT = 2, 60
"""The card request of the pod of every environment."""


def pod_manifest(name: str = POD, cards: int = CARDS, percent: int = PERCENT) -> Raw:
    limits = {"gpu.mps.io/ledger": "1", "gpu.mps.io/percent": str(cards * percent)}
    return {
        "metadata": {
            "name": name,
            "annotations": {"gpu.mps.io/cards": str(cards), "gpu.mps.io/ratio": str(percent)},
        },
        "spec": {
            "schedulerName": "unused",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": "any", "resources": {"limits": limits}}],
        },
    }


def card(node: str, index: int, **holders: int) -> Raw:
    return {
        "id": f"{node}-gpu-{index}",
        "index": index,
        "mode": "Percent",
        "epoch": 1,
        "capacityPercent": 100,
        "healthy": True,
        "holders": holders,
    }


def moment(seconds: float) -> str:
    """A timestamp `seconds` from now."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class FlowEnv:
    api: Client
    name: str

    @property
    def node(self) -> str:
        return self.name

    @property
    def namespace(self) -> str:
        return self.name

    async def lay(self, cards: int = 4) -> None:
        """Create the node and its namespace."""
        await self.api.create(kinds.NAMESPACES, {"metadata": {"name": self.namespace}})
        account = {"metadata": {"name": "default"}}
        await self.api.create(ACCOUNTS, account, namespace=self.namespace)
        amounts = {"nvidia.com/gpu": str(cards), "pods": "110"}
        status = {"allocatable": amounts, "capacity": amounts}
        await self.api.create(kinds.NODES, {"metadata": {"name": self.node}, "status": status})

    async def open(self, cards: int = 4) -> None:
        spec = {"cards": [card(self.node, index) for index in range(cards)]}
        await self.api.create(kinds.NODE_RESERVATIONS, {"metadata": {"name": self.node}, "spec": spec})

    async def pod(self, name: str = POD) -> str:
        made = await self.api.create(kinds.PODS, pod_manifest(name), namespace=self.namespace)
        return f"{self.namespace}/{name}/{made.metadata.uid}"

    async def hold(self, holder: str, seconds: float | None, reservation: str = "") -> None:
        """Add a holder: Held for `seconds`, Bound if None, or Held without expiry by a Reservation."""
        raw = await self.api.get(kinds.NODE_RESERVATIONS.raw, self.node)
        for entry in raw["spec"]["cards"][:CARDS]:
            entry.setdefault("holders", {})[holder] = PERCENT
        raw["spec"].setdefault("held", {}).pop(holder, None)
        if seconds is not None:
            raw["spec"]["held"][holder] = moment(seconds)
        if reservation:
            raw["spec"]["held"][holder] = "never"
            raw["spec"]["reservations"] = {holder: reservation}
        raw["spec"].pop("summary", None)  # another program does not know it
        await self.api.update(kinds.NODE_RESERVATIONS, raw)

    async def bind(self, holder: str) -> None:
        _, name, uid = holder.split("/")
        entries = [{"card": f"{self.node}-gpu-{i}", "index": i, "percent": PERCENT} for i in range(CARDS)]
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "uid": uid, "annotations": {facts.ALLOCATION: json.dumps(entries)}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }
        await self.api.create(kinds.PODS, body, namespace=self.namespace, name=name, subresource="binding")

    async def remove_pod(self, name: str = POD) -> None:
        now = DeleteOptions(grace_seconds=0)
        await self.api.delete(kinds.PODS, name, namespace=self.namespace, how=now)

    async def reservation(self, finalizers: Sequence[str] = ()) -> None:
        spec = {"podKey": f"{self.namespace}/{POD}", "nodeName": self.node}
        meta = {"name": RESERVATION, "finalizers": list(finalizers)}
        body = {
            "metadata": meta,
            "spec": {**spec, "numCards": CARDS, "percentPerCard": PERCENT},
        }
        await self.api.create(kinds.RESERVATIONS, body, namespace=self.namespace)

    async def remove_reservation(self) -> None:
        await self.api.delete(kinds.RESERVATIONS, RESERVATION, namespace=self.namespace)

    async def report(self, cards: int) -> None:
        amounts = {"nvidia.com/gpu": str(cards)}
        patch = {"status": {"allocatable": amounts, "capacity": amounts}}
        await self.api.patch(kinds.NODES, self.node, patch, subresource="status")

    async def sheet(self) -> LedgerRevision | None:
        try:
            return read(await self.api.get(kinds.NODE_RESERVATIONS.raw, self.node))
        except NotFound:
            return None

    async def found(self, resource: Resource[Any], name: str) -> Raw | None:
        try:
            return await self.api.get(resource.raw, name, namespace=self.namespace)
        except NotFound:
            return None

    async def ending(self) -> str:
        """The state in one word, or `unsettled: ...` while it must still change."""
        sheet = await self.sheet()
        if sheet is not None and sheet.summary is None:
            return "unsettled: the ledger has no summary"
        return await self.ending_by(sheet)

    async def ending_by(self, sheet: LedgerRevision | None) -> str:
        """The same for a given ledger."""
        pod, claim = await self.found(kinds.PODS, POD), await self.found(kinds.RESERVATIONS, RESERVATION)
        if claim is not None:
            return _reserved(sheet, claim) + (" and bound" if pod and pod["spec"].get("nodeName") else "")
        if sheet is None:
            return "closed"
        if pod is not None and pod["spec"].get("nodeName") == self.node:
            return _bound(sheet, pod)
        if sheet.grants:
            return f"unsettled: {sorted(sheet.grants)} hold"
        return f"free, {len(sheet.cards)} cards"


def from_memory(ledger: Ledger | None) -> LedgerRevision | None:
    """The revision of an in-memory ledger."""
    if ledger is None:
        return None
    grants = {holder: frozenset(_parts(ledger, holder)) for holder in ledger.holders()}
    cards = {entry.id: {"id": entry.id} for entry in ledger.cards}
    held, reservations = frozenset(ledger.held), frozenset(ledger.reservations)
    return LedgerRevision(ledger.node, 0, 0, "", cards, grants, held, reservations, len(cards))


def _parts(ledger: Ledger, holder: str) -> Iterator[tuple[str, int, str]]:
    for part in ledger.grant(holder):
        yield from ((part.card, 0, slot) for slot in part.slots)
        if part.share:
            yield part.card, part.share, ""


def _bound(sheet: LedgerRevision, pod: Raw) -> str:
    meta = pod["metadata"]
    holder = f"{meta['namespace']}/{meta['name']}/{meta['uid']}"
    if sheet.held or sheet.grants.keys() != {holder}:
        return f"unsettled: {sorted(sheet.grants)} hold, {sorted(sheet.held)} of them only Held"
    allocated = facts.granted(meta.get("annotations", {}).get(facts.ALLOCATION, "[]"))
    return "bound" if sheet.grants[holder] == allocated else "WRONG CARDS"


def _reserved(sheet: LedgerRevision | None, claim: Raw) -> str:
    status = claim.get("status", {})
    if sheet is None or status.get("phase") != "Reserved" or claim["metadata"].get("deletionTimestamp"):
        return f"unsettled: the Reservation is {status.get('phase')}"
    cards = frozenset((entry["id"], entry["percent"], "") for entry in status["cards"])
    return "reserved" if set(sheet.grants.values()) == {cards} else "RESERVED, NOT HELD"


async def _reserve(world: FlowEnv) -> None:
    await world.lay()
    await world.open()
    await world.pod()


async def _held(world: FlowEnv, seconds: float) -> str:
    await world.lay()
    await world.open()
    holder = await world.pod()
    await world.hold(holder, seconds)
    return holder


async def _release(world: FlowEnv) -> None:
    await _held(world, 8)


async def _expire(world: FlowEnv) -> None:
    await _held(world, -1)


async def _promote(world: FlowEnv) -> None:
    await world.bind(await _held(world, 2))


async def _free(world: FlowEnv) -> None:
    holder = await _held(world, 60)
    await world.bind(holder)
    await world.hold(holder, None)
    await world.remove_pod()


async def _finalize(world: FlowEnv) -> None:
    await world.lay()
    await world.open()
    await world.reservation()


async def _takeover(world: FlowEnv) -> None:
    """A Reservation holds cards for the pod, and the pod exists."""
    await world.lay()
    await world.open()
    holder = (await world.pod()).rpartition("/")[0]
    await world.reservation(finalizers=["mps.nvidia.com/release"])
    await world.hold(holder, None, reservation=RESERVATION)


async def _status(world: FlowEnv) -> None:
    await world.lay()
    await world.open()


async def _sync(world: FlowEnv) -> None:
    await world.lay()
    await world.open()
    await world.report(6)


async def _close(world: FlowEnv) -> None:
    await world.lay()
    await world.open()
    await world.api.delete(kinds.NODES, world.node)


async def _memory_bind(world: FlowEnv) -> None:
    await world.lay()
    await world.pod()


async def _memory_reservation(world: FlowEnv) -> None:
    await world.lay()
    await world.reservation()


SETUPS: Mapping[str, Callable[[FlowEnv], Awaitable[None]]] = {
    "reserve": _reserve,
    "bind": _reserve,
    "release": _release,
    "expire": _expire,
    "promote": _promote,
    "free": _free,
    "finalize": _finalize,
    "open": FlowEnv.lay,
    "sync": _sync,
    "close": _close,
    "audit": _free,
    "status": _status,
    "takeover": _takeover,
    "memory-bind": _memory_bind,
    "memory-reservation": _memory_reservation,
}
