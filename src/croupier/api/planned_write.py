"""The one write of an action on a card, a pool or a Reservation, and the equal command lines.

A preview sends the same request as the action, with dryRun, so that RBAC and admission policies answer before
anything is written.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from croupier.api import kinds
from croupier.api.gpu import GPUDevice, GPUPool, card_changes
from croupier.api.gpu.card_changes import CardChange
from croupier.api.gpu.device import DRAIN, IGNORE, RETIRED
from croupier.api.gpu.pool import CONFIRMED, UNIT_OF_MODE, PoolAllocation
from croupier.api.mps import Reservation
from croupier.core.explanation.card_outcomes import CardsAction
from croupier.core.model.refusal import Refusal
from croupier.core.model.withheld import BY_HAND
from croupier.core.pools.assignment import ASSIGNMENT
from croupier.kube.client.api_client import Client, DeleteOptions
from croupier.kube.client.resource import Resource

_FIELDS_OF_MODES: Final = ("migProfile", "migLayout", "timeSlice")
"""Fields of an allocation that belong to one mode: a merge patch must remove them from another."""


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """A merge patch, or with `patch` None the deletion of the object."""

    resource: Resource[Any]
    name: str
    version: str
    """The resourceVersion that the action was decided about."""
    patch: dict[str, Any] | None
    command: str
    """The equal `croupier` command, or kubectl if there is none."""
    kubectl: str
    namespace: str | None = None
    uid: str = ""


async def send(api: Client, write: PlannedWrite, *, version: str | None = None, dry_run: bool = False) -> str:
    """Write, only to `version` of the object if it is given; the resourceVersion after the write."""
    if write.patch is None:
        how = DeleteOptions(uid=write.uid or None, resource_version=version)
        await api.delete(write.resource, write.name, namespace=write.namespace, how=how, dry_run=dry_run)
        return ""
    body = write.patch
    if version is not None:
        body = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": version}}
    written = await api.patch(write.resource, write.name, body, namespace=write.namespace, dry_run=dry_run)
    return str(written.metadata.resource_version)


def change_of(action: CardsAction, device: GPUDevice) -> CardChange | Refusal:
    match action.verb:
        case "assign":
            return card_changes.assign(device, action.pool)
        case "unassign":
            return card_changes.unassign(device)
        case "drain":
            return card_changes.drain(device, action.reason)
        case "undrain":
            return card_changes.undo_drain(device)
        case "retire":
            return card_changes.retire(device, action.reason)
        case "unretire":
            return card_changes.undo_retire(device)


def card(action: CardsAction, device: GPUDevice) -> PlannedWrite:
    """The write of the action; of an assignment that takes two steps, the first."""
    name, change = device.metadata.name, change_of(action, device)
    command, kubectl = _croupier(action, name), _kubectl(action, name)
    if isinstance(change, Refusal):
        first = CardsAction("unassign", (name,))
        change = card_changes.unassign(device)
        command, kubectl = f"{_croupier(first, name)} && {command}", _kubectl(first, name)
    return PlannedWrite(
        kinds.GPU_DEVICES,
        name,
        device.metadata.resource_version,
        {"metadata": change.patch},
        command,
        kubectl,
    )


def _croupier(action: CardsAction, name: str) -> str:
    match action.verb:
        case "assign":
            words = ["assign", name, action.pool]
        case "drain" | "retire" as verb:
            words = [verb, name, *(["--reason", action.reason] if action.reason else [])]
        case "undrain":
            words = ["drain", name, "--undo"]
        case "unretire":
            words = ["retire", name, "--undo"]
        case verb:
            words = [verb, name]
    return shlex.join(["croupier", *words])


def _kubectl(action: CardsAction, name: str) -> str:
    match action.verb:
        case "assign":
            words = ["annotate", "gpudevice", name, f"{ASSIGNMENT}={action.pool}", "--overwrite"]
        case "unassign":
            words = ["annotate", "gpudevice", name, f"{ASSIGNMENT}-"]
        case "drain":
            words = ["annotate", "gpudevice", name, f"{DRAIN}={action.reason or BY_HAND}", "--overwrite"]
        case "undrain":
            words = ["annotate", "gpudevice", name, f"{DRAIN}-"]
        case "retire":
            annotations = {ASSIGNMENT: None, RETIRED: action.reason or BY_HAND}
            body = {"metadata": {"labels": {IGNORE: "true"}, "annotations": annotations}}
            words = ["patch", "gpudevice", name, "--type", "merge", "-p", _json(body)]
        case "unretire":
            body = {"metadata": {"labels": {IGNORE: None}, "annotations": {RETIRED: None}}}
            words = ["patch", "gpudevice", name, "--type", "merge", "-p", _json(body)]
    return shlex.join(["kubectl", *words])


def confirm(pool: GPUPool) -> PlannedWrite:
    """Confirm the current generation of the pool."""
    name, generation = pool.metadata.name, str(pool.metadata.generation)
    words = ["kubectl", "annotate", "gpupool", name, f"{CONFIRMED}={generation}", "--overwrite"]
    patch = {"metadata": {"annotations": {CONFIRMED: generation}}}
    command = shlex.join(["croupier", "pools", "confirm", name])
    return PlannedWrite(
        kinds.GPU_POOLS, name, pool.metadata.resource_version, patch, command, shlex.join(words)
    )


def share(pool: GPUPool, changes: Mapping[str, Any]) -> PlannedWrite:
    """Change how the cards of the pool are shared; fields of other modes are removed."""
    name, mode = pool.metadata.name, changes.get("mode", pool.spec.allocation.mode)
    patch: dict[str, Any] = {"spec": {"allocation": {**_removed(pool, changes), **changes}}}
    if pool.spec.resource.unit not in (None, UNIT_OF_MODE.get(mode)):
        patch["spec"]["resource"] = {"unit": None}  # the unit follows the mode
    line = shlex.join(["kubectl", "patch", "gpupool", name, "--type", "merge", "-p", _json(patch)])
    return PlannedWrite(kinds.GPU_POOLS, name, pool.metadata.resource_version, patch, line, line)


def wanted_allocation(pool: GPUPool, changes: Mapping[str, Any]) -> PoolAllocation | Refusal:
    """The allocation of the pool with the changes."""
    old, removed = msgspec.to_builtins(pool.spec.allocation), _removed(pool, changes)
    merged = {name: value for name, value in {**old, **changes}.items() if name not in removed}
    unknown = changes.keys() - {field.encode_name for field in msgspec.structs.fields(PoolAllocation)}
    if unknown:
        return Refusal(f"the allocation has unknown fields: {', '.join(sorted(unknown))}")
    try:
        return msgspec.convert(merged, PoolAllocation)
    except msgspec.ValidationError as error:
        return Refusal(f"the allocation is invalid: {error}")


def _removed(pool: GPUPool, changes: Mapping[str, Any]) -> dict[str, None]:
    old = msgspec.to_builtins(pool.spec.allocation)
    return {field: None for field in _FIELDS_OF_MODES if field in old and field not in changes}


def release(reservation: Reservation) -> PlannedWrite:
    meta = reservation.metadata
    line = shlex.join(["kubectl", "delete", "reservation", meta.name, "-n", meta.namespace])
    return PlannedWrite(
        kinds.RESERVATIONS,
        meta.name,
        meta.resource_version,
        None,
        line,
        line,
        namespace=meta.namespace,
        uid=meta.uid,
    )


def _json(body: dict[str, Any]) -> str:
    return msgspec.json.encode(body).decode()
