"""Whether the controllers have carried out an action, in one sentence per object."""

from typing import Any

from croupier.api import meta, planned_write
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, card_changes, convert_pool
from croupier.api.gpu.device import OCCUPIED
from croupier.api.gpu.pool import CONFIRMED, PoolAllocation
from croupier.core.explanation import card_outcomes, fleet
from croupier.core.explanation.card_outcomes import CardsAction
from croupier.core.model.card import LedgerCard
from croupier.core.model.refusal import Refusal


def card(
    action: CardsAction,
    device: GPUDevice,
    *,
    pool: GPUPool | None,
    inventory: GPUNodeInventory | None,
    held: LedgerCard | None,
) -> dict[str, Any]:
    """`pool` is the pool of the action or of the card; `held` the card in the ledger that the viewer sees."""
    name, change = device.metadata.name, planned_write.change_of(action, device)
    if isinstance(change, Refusal):
        return _progress(name, done=False, sentence=str(change))
    if card_changes.is_complete(change, device, pool):
        return _progress(name, done=True, sentence=change.done_message)
    return _progress(name, done=False, sentence=f"waits: {_reason(device, pool, inventory, held)}")


def _reason(
    device: GPUDevice, pool: GPUPool | None, inventory: GPUNodeInventory | None, held: LedgerCard | None
) -> str:
    """As the command line says it, but with only the holders that the viewer may see."""
    occupied = meta.condition(device.status.conditions, OCCUPIED)
    declined = card_changes.declined_by(device, pool)
    if occupied is not None and occupied.status == "True" and not declined:
        holders = list(fleet.holders(held)) if held is not None else []
        return f"until {card_outcomes.named_holders(holders)} ended"
    return card_changes.pending_reason(device, pool, inventory)


def confirm(pool: GPUPool, *, messages: bool) -> dict[str, Any]:
    name, wrong = pool.metadata.name, meta.condition(pool.status.conditions, "Misconfigured")
    if pool.metadata.annotations.get(CONFIRMED) != str(pool.metadata.generation):
        return _progress(name, done=False, sentence="this generation of the pool is not confirmed")
    if wrong is not None and wrong.status == "True":
        why = wrong.message if messages else wrong.reason
        return _progress(name, done=False, sentence=f"is confirmed and still misconfigured: {why}")
    return _progress(name, done=True, sentence=f"pool {name} is used again.")


def share(pool: GPUPool, wanted: PoolAllocation, *, messages: bool) -> dict[str, Any]:
    name, sharing = pool.metadata.name, convert_pool.sharing(wanted)
    applied, closed = pool.status.allocation, meta.condition(pool.status.conditions, "Maintenance")
    if closed is not None and closed.status == "True":
        why = closed.message if messages else closed.reason
        return _progress(name, done=False, sentence=f"is in Maintenance: {why}")
    behind = meta.condition(pool.status.conditions, "Configured")
    if applied is None or convert_pool.sharing(applied) != sharing:
        why = behind.message if behind is not None and behind.status == "False" and messages else ""
        return _progress(name, done=False, sentence=why or "no controller has processed the change yet")
    return _progress(name, done=True, sentence=f"pool {name} is shared as {sharing}.")


def release(name: str, *, exists: bool) -> dict[str, Any]:
    if exists:
        return _progress(name, done=False, sentence="the Reservation is not deleted yet")
    return _progress(name, done=True, sentence=f"Reservation {name} is deleted.")


def _progress(name: str, *, done: bool, sentence: str) -> dict[str, Any]:
    return {"name": name, "done": done, "sentence": sentence}
