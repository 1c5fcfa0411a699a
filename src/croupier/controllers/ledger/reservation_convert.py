"""Converts Reservations between their API type and the values of the core."""

from datetime import datetime
from typing import Any, Final

import msgspec

from croupier.api import meta
from croupier.api.meta import Condition
from croupier.api.mps import Reservation
from croupier.api.mps.reservation import RELEASE_FINALIZER, GrantedCard, ReservationStatus
from croupier.core.claims.reservation import LastReservationStatus, ReservationOutcome, ReservationRequest
from croupier.core.model.card_request import CardShares
from croupier.core.model.condition import ConditionStatus, DesiredCondition
from croupier.kube.client.resource import Raw

CONDITION: Final = "Reserved"
_OWN_FIELDS: Final = ("phase", "message", "lastUpdateTime", "cards", "podUID", "conditions")


def read(found: Reservation, now: datetime) -> ReservationRequest:
    meta, spec = found.metadata, found.spec
    return ReservationRequest(
        namespace=meta.namespace,
        name=meta.name,
        pod=spec.pod_key,
        want=CardShares(spec.num_cards, spec.percent_per_card),
        created=meta.creation_timestamp or now,
        priority=spec.priority,
        ttl=spec.ttl_seconds,
        deleted=meta.deletion_timestamp is not None,
        has_finalizer=RELEASE_FINALIZER in meta.finalizers,
        last_status=_last_status(found.status),
    )


def _last_status(status: ReservationStatus) -> LastReservationStatus:
    condition = meta.condition(status.conditions, CONDITION)
    reason = "" if condition is None else condition.reason
    return LastReservationStatus(status.phase, reason, status.message, status.last_update_time)


def next_status(found: Reservation, outcome: ReservationOutcome, now: datetime) -> ReservationStatus:
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
        conditions=(*others, _new_condition(found, outcome, now)),
    )


def _new_condition(found: Reservation, outcome: ReservationOutcome, now: datetime) -> Condition:
    holds: ConditionStatus = "True" if outcome.phase == "Reserved" else "False"
    desired = DesiredCondition(CONDITION, holds, outcome.reason, outcome.message)
    return meta.updated_condition(desired, found.status.conditions, now, found.metadata.generation)


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
