"""Conditions in a status that several controllers write: each controller owns some types."""

from collections.abc import Collection, Iterable
from datetime import datetime

from croupier.api.meta import Condition
from croupier.core.model.condition import DesiredCondition


def merge(
    judged: Iterable[DesiredCondition], old: Iterable[Condition], now: datetime
) -> tuple[Condition, ...]:
    """Sorted by type. A condition whose status did not change keeps its transition time."""
    before = {condition.type: condition for condition in old}
    return tuple(
        _merge(desired, before.get(desired.type), now.replace(microsecond=0))
        for desired in sorted(judged, key=lambda desired: desired.type)
    )


def _merge(judged: DesiredCondition, old: Condition | None, now: datetime) -> Condition:
    same = old is not None and old.status == judged.status
    return Condition(
        type=judged.type,
        status=judged.status,
        reason=judged.reason,
        message=judged.message,
        last_transition_time=old.last_transition_time if same and old is not None else now,
    )


def select(types: Collection[str], conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """The conditions of these types, sorted by type."""
    return tuple(sorted((cond for cond in conditions if cond.type in types), key=lambda cond: cond.type))


def became_true(old: Iterable[Condition], new: Iterable[Condition]) -> list[Condition]:
    """The conditions that are True now and were not before."""
    before = {condition.type for condition in old if condition.status == "True"}
    return [condition for condition in new if condition.status == "True" and condition.type not in before]
