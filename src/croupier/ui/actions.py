"""Actions of the page: a preview that writes nothing, the write as the user, and its progress.

A preview runs the decisions of the controllers on the cluster in memory, and sends the same request with
dryRun as the user, so that RBAC and admission policies answer in it. The write itself names the
resourceVersion that was previewed: what changed in between is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import structlog

from croupier.api import convert_pod, kinds, planned_write
from croupier.api.core_v1 import Pod
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, card_changes
from croupier.api.gpu.pool import PoolAllocation
from croupier.api.mps import Reservation
from croupier.api.planned_write import PlannedWrite
from croupier.capacity import action_preview, pod_explanation
from croupier.capacity.action_preview import ActionPreview, PreviewInputs
from croupier.capacity.snapshot import ClusterSnapshot
from croupier.core.model.refusal import Refusal
from croupier.core.pools.assignment import MANUAL_APPROVAL, Approval
from croupier.kube.client import concurrency
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import ApiError, Conflict, KubeError, NotFound
from croupier.ui import action_body, action_progress, redaction
from croupier.ui.action_body import GROUPS, ActionBody, ActionNotEnabled, AddedCards, BadActionRequest
from croupier.ui.metrics import PageMetrics
from croupier.ui.rights import Rights

AT_ONCE: Final = 16
"""Requests of one action that run at the same time."""

log = structlog.get_logger(__name__)


class ActionWorld(Protocol):
    """What actions need of the cluster in memory."""

    def snapshot(self) -> ClusterSnapshot: ...
    def pending_pods(self) -> Iterable[Pod]: ...
    def device(self, name: str) -> GPUDevice | None: ...
    def pool(self, name: str) -> GPUPool | None: ...
    def inventory(self, node: str) -> GPUNodeInventory | None: ...


@dataclass(frozen=True, slots=True)
class RefusedWrite:
    """A card that the action does not change, and why."""

    name: str
    why: str


class Actions:
    """`enabled` are the groups of actions that are switched on."""

    def __init__(
        self,
        world: ActionWorld,
        enabled: tuple[str, ...] = (),
        *,
        metrics: PageMetrics | None = None,
        approval: Approval = MANUAL_APPROVAL,
    ) -> None:
        self._world = world
        self.enabled = enabled
        self._metrics = metrics
        self._approval = approval

    async def preview(self, body: bytes, api: Client, rights: Rights) -> dict[str, Any]:
        asked = action_body.action(body)
        found = self._preview(asked, rights)
        data = action_preview.as_data(found)
        why = self._disabled(asked)
        answers = (
            [{"ok": False, "message": why}] * len(found.objects)
            if why
            else await concurrency.gather_limited(
                (_dry_run(api, item.write) for item in found.objects), at_once=AT_ONCE
            )
        )
        for item, answer in zip(data["objects"], answers, strict=True):
            item["dryRun"] = answer
        return data

    async def act(self, body: bytes, api: Client, rights: Rights) -> dict[str, Any]:
        asked = action_body.action(body)
        if why := self._disabled(asked):
            raise ActionNotEnabled(why)
        writes = self._writes(asked, rights)
        results = await concurrency.gather_limited(
            (_write(api, write, asked.versions) for write in writes), at_once=AT_ONCE
        )
        written = sum(1 for result in results if result["ok"])
        if self._metrics is not None:
            self._metrics.actions.labels(asked.action, "written").inc(written)
            self._metrics.actions.labels(asked.action, "refused").inc(len(results) - written)
        log.info(
            f"the page wrote {written} of {len(results)} objects for action {asked.action}",
            action=asked.action,
            objects=len(results),
            written=written,
        )
        return {"results": results}

    async def progress(self, body: bytes, rights: Rights) -> dict[str, Any]:
        asked = action_body.action(body)
        if GROUPS[asked.action] == "cards":
            seen = redaction.snapshot(self._world.snapshot(), rights)
            devices = self._devices(asked.cards, rights)
            return {"objects": [self._card_progress(asked, device, seen) for device in devices]}
        if asked.action == "release":
            exists = self._find_reservation(asked, rights) is not None
            return {"objects": [action_progress.release(asked.name, exists=exists)]}
        pool = self._pool(asked.pool, rights)
        if asked.action == "confirm":
            return {"objects": [action_progress.confirm(pool, messages=rights.whole_pools)]}
        wanted = _allocation(pool, asked)
        return {"objects": [action_progress.share(pool, wanted, messages=rights.whole_pools)]}

    def what_if(self, body: bytes, rights: Rights) -> dict[str, Any]:
        asked = action_body.what_if(body)
        pod = action_body.pod(asked)
        view = convert_pod.view(pod)
        seen = redaction.snapshot(self._world.snapshot(), rights)
        if asked.add is not None:
            seen = self._with_added(asked.add, seen, rights)
        results = []
        for strategy in dict.fromkeys(asked.strategies) or (None,):
            played, world = pod_explanation.what_if(pod, asked.copies, strategy, seen)
            results.append(pod_explanation.what_if_data(view, played, world, asked.copies))
        return {"results": results}

    # --- what-if

    def _with_added(self, add: AddedCards, seen: ClusterSnapshot, rights: Rights) -> ClusterSnapshot:
        pool = self._pool(add.pool, rights)
        devices = self._devices(add.cards, rights)
        inputs = self._inputs(rights)
        return replace(seen, ledgers=action_preview.ledgers_with(devices, pool.metadata.name, inputs))

    # --- previews and writes

    def _preview(self, asked: ActionBody, rights: Rights) -> ActionPreview:
        match asked.action:
            case "confirm":
                return action_preview.of_confirm(self._pool(asked.pool, rights), messages=rights.whole_pools)
            case "release":
                return action_preview.of_release(self._reservation(asked, rights), self._inputs(rights))
            case "share":
                pool = self._pool(asked.pool, rights)
                write = planned_write.share(pool, asked.allocation or {})
                wanted = _allocation(pool, asked)
                return action_preview.of_share(pool, wanted, write, self._inputs(rights))
            case _:
                devices = self._devices(asked.cards, rights)
                self._check_pool(asked, rights)
                return action_preview.of_cards(asked.cards_action, devices, self._inputs(rights))

    def _writes(self, asked: ActionBody, rights: Rights) -> list[PlannedWrite | RefusedWrite]:
        """One write per object, or why there is none."""
        match asked.action:
            case "confirm":
                return [planned_write.confirm(self._pool(asked.pool, rights))]
            case "release":
                return [planned_write.release(self._reservation(asked, rights))]
            case "share":
                pool = self._pool(asked.pool, rights)
                _allocation(pool, asked)
                return [planned_write.share(pool, asked.allocation or {})]
            case _:
                self._check_pool(asked, rights)
                return [_card_write(asked, device) for device in self._devices(asked.cards, rights)]

    def _disabled(self, asked: ActionBody) -> str:
        group = GROUPS[asked.action]
        if group in self.enabled:
            return ""
        return (
            f"this page does not change {group}: to allow it, add {group} to `ui.actions` of the chart, "
            f"or start `croupier ui` with --actions {group}"
        )

    def _inputs(self, rights: Rights) -> PreviewInputs:
        """The cluster with hidden holders; decisions need all cards and pools."""
        whole = self._world.snapshot()
        cut = redaction.snapshot(whole, rights)
        seen = replace(cut, nodes=whole.nodes, devices=whole.devices, pools=whole.pools)
        return PreviewInputs(
            seen,
            self._world.inventory,
            self._world.pending_pods(),
            shows=rights.sees_namespace,
            shows_pool=rights.sees_pool,
            approval=self._approval,
        )

    # --- objects

    def _devices(self, names: Iterable[str], rights: Rights) -> list[GPUDevice]:
        if not rights.all_cards:
            raise ActionNotEnabled("you may not list gpudevices, so you cannot change cards here")
        return [self._device(name) for name in names]

    def _device(self, name: str) -> GPUDevice:
        device = self._world.device(name)
        if device is None:
            raise BadActionRequest(f"there is no card {name}; reload the page to see the current cards")
        return device

    def _pool(self, name: str, rights: Rights) -> GPUPool:
        pool = self._world.pool(name) if rights.sees_pool(name) else None
        if pool is None:
            raise BadActionRequest(f"there is no pool {name}; reload the page to see the current pools")
        return pool

    def _check_pool(self, asked: ActionBody, rights: Rights) -> None:
        if asked.action == "assign":
            self._pool(asked.pool, rights)

    def _find_reservation(self, asked: ActionBody, rights: Rights) -> Reservation | None:
        key = f"{asked.namespace}/{asked.name}"
        known = (item for item in self._world.snapshot().reservations if item.metadata.key == key)
        return next(known, None) if rights.sees_namespace(asked.namespace) else None

    def _reservation(self, asked: ActionBody, rights: Rights) -> Reservation:
        found = self._find_reservation(asked, rights)
        if found is None:
            raise BadActionRequest(f"there is no Reservation {asked.namespace}/{asked.name}")
        return found

    def _card_progress(self, asked: ActionBody, device: GPUDevice, seen: ClusterSnapshot) -> dict[str, Any]:
        ledger = seen.ledgers.get(device.status.node_name or "")
        return action_progress.card(
            asked.cards_action,
            device,
            pool=self._world.pool(asked.pool or card_changes.pool_of(device)),
            inventory=self._world.inventory(device.status.node_name or ""),
            held=ledger.card(device.card_id) if ledger is not None else None,
        )


def _allocation(pool: GPUPool, asked: ActionBody) -> PoolAllocation:
    wanted = planned_write.wanted_allocation(pool, asked.allocation or {})
    if isinstance(wanted, Refusal):
        raise BadActionRequest(str(wanted))
    return wanted


def _card_write(asked: ActionBody, device: GPUDevice) -> PlannedWrite | RefusedWrite:
    change = planned_write.change_of(asked.cards_action, device)
    if isinstance(change, Refusal):
        return RefusedWrite(device.metadata.name, str(change))
    return planned_write.card(asked.cards_action, device)


async def _dry_run(api: Client, write: PlannedWrite) -> dict[str, Any]:
    try:
        await planned_write.send(api, write, dry_run=True)
    except KubeError as error:
        return {"ok": False, "message": _sentence(error)}
    return {"ok": True, "message": ""}


async def _write(
    api: Client, write: PlannedWrite | RefusedWrite, versions: Mapping[str, str]
) -> dict[str, Any]:
    if isinstance(write, RefusedWrite):
        return _result(kinds.GPU_DEVICES.kind, write.name, problem=write.why)
    kind, name = write.resource.kind, write.name
    previewed = versions.get(name)
    if not previewed:
        why = f"{_described(write)} was not previewed: preview the action first"
        return _result(kind, name, problem=why)
    try:
        version = await planned_write.send(api, write, version=previewed)
    except Conflict:
        return _result(kind, name, problem=f"{_described(write)} changed since the preview: preview again")
    except NotFound:
        return _result(kind, name, problem=f"{_described(write)} does not exist any more")
    except KubeError as error:
        return _result(kind, name, problem=_sentence(error))
    return _result(kind, name, version=version)


def _described(write: PlannedWrite) -> str:
    nouns = {"GPUDevice": "card", "GPUPool": "pool"}
    return f"{nouns.get(write.resource.kind, write.resource.kind)} {write.name}"


def _sentence(error: KubeError) -> str:
    """The sentence of the API server, or that it did not answer."""
    if isinstance(error, ApiError):
        return error.message or str(error)
    return f"the API server did not answer, so it is unknown whether the request took effect: {error}"


def _result(kind: str, name: str, *, version: str = "", problem: str = "") -> dict[str, Any]:
    return {
        "kind": kind,
        "name": name,
        "ok": not problem,
        "message": problem or "written",
        "resourceVersion": version,
    }
