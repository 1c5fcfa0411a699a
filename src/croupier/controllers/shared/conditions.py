"""Conditions in a status that several controllers write: each controller owns some types.

Each condition names the generation of the object that its controller read, because one controller may have
evaluated a new spec before the others.
"""

from collections.abc import Collection, Iterable
from datetime import datetime

from croupier.api import meta
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool
from croupier.api.meta import Condition
from croupier.core.model.condition import DesiredCondition


def merge(
    judged: Iterable[DesiredCondition], found: GPUDevice | GPUNodeInventory | GPUPool, now: datetime
) -> tuple[Condition, ...]:
    """The conditions decided from `found`, sorted by type."""
    before, generation = found.status.conditions, found.metadata.generation
    ordered = sorted(judged, key=lambda desired: desired.type)
    return tuple(meta.updated_condition(each, before, now=now, generation=generation) for each in ordered)


def select(types: Collection[str], conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """The conditions of these types, sorted by type."""
    return tuple(sorted((cond for cond in conditions if cond.type in types), key=lambda cond: cond.type))


def became_true(old: Iterable[Condition], new: Iterable[Condition]) -> list[Condition]:
    """The conditions that are True now and were not before."""
    before = {condition.type for condition in old if condition.status == "True"}
    return [condition for condition in new if condition.status == "True" and condition.type not in before]
