"""Conditions as several writers keep them in one status: each its own types, and none without a reason."""

from collections.abc import Collection, Iterable
from datetime import datetime

from croupier.api.meta import Condition
from croupier.core.nodes.bootstrap import Judged


def kept(judged: Iterable[Judged], old: Iterable[Condition], now: datetime) -> tuple[Condition, ...]:
    """In the order of their types; the time of what did not change its status stays."""
    before = {one.type: one for one in old}
    return tuple(
        _kept(one, before.get(one.type), now.replace(microsecond=0))
        for one in sorted(judged, key=lambda one: one.type)
    )


def _kept(judged: Judged, old: Condition | None, now: datetime) -> Condition:
    same = old is not None and old.status == judged.status
    return Condition(
        type=judged.type,
        status=judged.status,
        reason=judged.reason,
        message=judged.message,
        last_transition_time=old.last_transition_time if same and old is not None else now,
    )


def of(types: Collection[str], conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """One writer's own of them, in the order of their types."""
    return tuple(sorted((one for one in conditions if one.type in types), key=lambda one: one.type))


def turned(old: Iterable[Condition], new: Iterable[Condition]) -> list[Condition]:
    """Those that are True now and were not."""
    before = {one.type for one in old if one.status == "True"}
    return [one for one in new if one.status == "True" and one.type not in before]
