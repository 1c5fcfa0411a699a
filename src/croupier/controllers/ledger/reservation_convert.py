"""Converts Reservations between their API type and the values of the core."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from croupier.api import meta
from croupier.api.meta import Condition
from croupier.api.mps import Reservation
from croupier.api.mps.reservation import RELEASE_FINALIZER, ChargedResource, GrantedCard, ReservationStatus
from croupier.core.claims import budget
from croupier.core.claims.budget import UNLIMITED, ReservationLimits
from croupier.core.claims.reservation_inputs import (
    LastReservationStatus,
    ReservationOutcome,
    ReservationRequest,
)
from croupier.core.model.card_request import CardShares
from croupier.core.model.condition import ConditionStatus, DesiredCondition
from croupier.kube.client.resource import Raw

CONDITION: Final = "Reserved"
_OWN_FIELDS: Final = (
    "phase",
    "message",
    "lastUpdateTime",
    "cards",
    "podUID",
    "expireTime",
    "charged",
    "observedGeneration",
    "conditions",
)


@dataclass(frozen=True, slots=True)
class ReservationRules:
    """What a Reservation means in this cluster, now."""

    now: datetime
    limits: ReservationLimits = UNLIMITED
    priorities: Mapping[str, int] = field(default_factory=dict)
    """The value of each PriorityClass."""
    default_priority: int = 0


def read(found: Reservation, rules: ReservationRules) -> ReservationRequest:
    meta, spec = found.metadata, found.spec
    created = meta.creation_timestamp or rules.now
    return ReservationRequest(
        namespace=meta.namespace,
        name=meta.name,
        pod=spec.pod_key,
        want=CardShares(spec.num_cards, spec.percent_per_card),
        created=created,
        priority=_priority(found, rules),
        priority_class=spec.priority_class_name,
        until=budget.end(
            created,
            spec.ttl_seconds,
            recorded=found.status.expire_time,
            now=rules.now,
            limits=UNLIMITED if _is_granted_without_end(found.status) else rules.limits,
        ),
        deleted=meta.deletion_timestamp is not None,
        has_finalizer=has_finalizer(found),
        last_status=_last_status(found.status),
    )


def has_finalizer(found: Reservation) -> bool:
    return RELEASE_FINALIZER in found.metadata.finalizers


def _is_granted_without_end(status: ReservationStatus) -> bool:
    """Granted without an end, by an earlier version or for lack of a default: it keeps its terms."""
    return status.phase == "Reserved" and status.expire_time is None


def _priority(found: Reservation, rules: ReservationRules) -> int:
    if found.spec.priority_class_name:
        return rules.priorities.get(found.spec.priority_class_name, 0)
    return found.spec.priority or rules.default_priority


def refusal(found: Reservation, rules: ReservationRules) -> ReservationOutcome | None:
    """Why it may not get cards, whatever is free."""
    name = found.spec.priority_class_name
    if name and name not in rules.priorities:
        return ReservationOutcome(
            "UnknownPriorityClass",
            f"PriorityClass {name} does not exist; list them with `kubectl get priorityclasses`",
        )
    reason = budget.ttl_refusal(found.spec.ttl_seconds, rules.limits)
    return None if reason is None else ReservationOutcome("TTLTooLong", reason.message)


def _last_status(status: ReservationStatus) -> LastReservationStatus:
    condition = meta.condition(status.conditions, CONDITION)
    reason = "" if condition is None else condition.reason
    return LastReservationStatus(status.phase, reason, status.message, status.last_update_time)


def next_status(
    found: Reservation,
    outcome: ReservationOutcome,
    now: datetime,
    *,
    ends: datetime | None = None,
    charged: Mapping[str, int] | None = None,
) -> ReservationStatus:
    """The status for an outcome; equal to the current one if nothing changes."""
    old, now = found.status, now.replace(microsecond=0)
    same = (old.phase, old.message) == (outcome.phase, outcome.message)
    others = tuple(condition for condition in old.conditions if condition.type != CONDITION)
    return msgspec.structs.replace(
        old,
        phase=outcome.phase,
        message=outcome.message,
        last_update_time=old.last_update_time if same and old.last_update_time else now,
        cards=tuple(GrantedCard(id=part.card, percent=part.share) for part in outcome.grant),
        pod_uid=outcome.pod_uid or (old.pod_uid if outcome.phase == "Released" else ""),
        expire_time=old.expire_time if outcome.reason == "PodBound" or outcome.phase == "Released" else ends,
        charged=tuple(
            ChargedResource(resource=name, amount=amount) for name, amount in sorted((charged or {}).items())
        ),
        observed_generation=found.metadata.generation,
        conditions=(*others, _new_condition(found, outcome, now)),
    )


def _new_condition(found: Reservation, outcome: ReservationOutcome, now: datetime) -> Condition:
    holds: ConditionStatus = "True" if outcome.phase == "Reserved" else "False"
    desired = DesiredCondition(CONDITION, holds, outcome.reason, outcome.message)
    return meta.updated_condition(
        desired, found.status.conditions, now=now, generation=found.metadata.generation
    )


def patch(found: Reservation, status: ReservationStatus) -> Raw:
    """A merge patch of the status, with the read version as precondition."""
    fields: dict[str, Any] = msgspec.to_builtins(status)
    cleared = dict.fromkeys(_OWN_FIELDS)
    return {**precondition(found), "status": {**cleared, "phase": status.phase, **fields}}


def precondition(found: Reservation) -> Raw:
    return {"metadata": {"resourceVersion": found.metadata.resource_version}}


def finalizers(found: Reservation, *, ours: bool) -> Raw:
    """A merge patch that adds or removes Croupier's finalizer."""
    others = [name for name in found.metadata.finalizers if name != RELEASE_FINALIZER]
    wanted = [*others, RELEASE_FINALIZER] if ours else others
    return {"metadata": {**precondition(found)["metadata"], "finalizers": wanted}}
