"""What may take the place of a MIG profile no node offers: the cluster's rule, and what a pod says to it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, get_args

from croupier.core import quantity
from croupier.core.ledgers.ledger import Refused
from croupier.core.pods import request
from croupier.core.quantity import Quantity

Direction: TypeAlias = Literal["nearest", "down", "up", "off"]
Quantities: TypeAlias = Literal["keep", "scale"]
NothingFits: TypeAlias = Literal["Admit", "Deny"]

DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)
DIRECTION: Final = "gpu-webhook.k8s.io/fallback-policy"
MIN_MEMORY: Final = "gpu-webhook.k8s.io/min-memory"


@dataclass(frozen=True, slots=True)
class Policy:
    direction: Direction = "nearest"
    min_memory: Quantity | None = None
    """What takes the place has at least so much memory, each of it."""
    prefer_available: bool = False
    """Of what exists, rather something of which one node has enough free now."""
    quantities: Quantities = "keep"
    """As many as were asked for, or as many as come to the memory asked for."""
    when_nothing_fits: NothingFits = "Admit"


def policy_of(annotations: Mapping[str, str], default: Policy) -> Policy | Refused:
    """The cluster's policy with what the pod says otherwise; what it says must be readable."""
    policy = default
    if DIRECTION in annotations:
        direction = next((one for one in DIRECTIONS if one == annotations[DIRECTION]), None)
        if direction is None:
            choices = f"{', '.join(DIRECTIONS[:-1])} or {DIRECTIONS[-1]}"
            return Refused(
                f"annotation {DIRECTION} is {request.shown(annotations[DIRECTION])}: it must be {choices}"
            )
        policy = replace(policy, direction=direction)
    if MIN_MEMORY in annotations:
        floor = memory(annotations[MIN_MEMORY])
        if floor is None:
            return Refused(
                f"annotation {MIN_MEMORY} is {request.shown(annotations[MIN_MEMORY])}: "
                'it must be an amount of memory, such as "10Gi", or "0" for any'
            )
        policy = replace(policy, min_memory=floor)
    return policy


def memory(written: str) -> Quantity | None:
    """An amount of bytes, not below 0; None if it is none."""
    try:
        amount = quantity.parse(written)
    except quantity.InvalidQuantityError:
        return None
    return amount if amount.nanos >= 0 else None
