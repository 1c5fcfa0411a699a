"""The policy for MIG profiles that no node offers: the cluster's default and the pod's annotations."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, get_args

from croupier.core import quantity
from croupier.core.model import name_list
from croupier.core.model.refusal import Refusal
from croupier.core.quantity import Quantity

Direction: TypeAlias = Literal["nearest", "down", "up", "off"]
Quantities: TypeAlias = Literal["keep", "scale"]
NothingFits: TypeAlias = Literal["Admit", "Deny"]

DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)
DIRECTION: Final = "gpu-webhook.k8s.io/fallback-policy"
MIN_MEMORY: Final = "gpu-webhook.k8s.io/min-memory"


@dataclass(frozen=True, slots=True)
class FallbackPolicy:
    direction: Direction = "nearest"
    min_memory: Quantity | None = None
    """Minimum memory of each replacement."""
    prefer_available: bool = False
    """Prefer a replacement of which one node has enough free now."""
    quantities: Quantities = "keep"
    """`keep` the requested number, or `scale` it to the requested memory."""
    when_nothing_fits: NothingFits = "Admit"


def policy_of(annotations: Mapping[str, str], default: FallbackPolicy) -> FallbackPolicy | Refusal:
    """The cluster's policy with the overrides of the pod; Refused if an annotation is invalid."""
    policy = default
    if DIRECTION in annotations:
        direction = next((name for name in DIRECTIONS if name == annotations[DIRECTION]), None)
        if direction is None:
            choices = f"{', '.join(DIRECTIONS[:-1])} or {DIRECTIONS[-1]}"
            return Refusal(
                f"annotation {DIRECTION} is {name_list.quoted(annotations[DIRECTION])}: it must be {choices}"
            )
        policy = replace(policy, direction=direction)
    if MIN_MEMORY in annotations:
        floor = memory(annotations[MIN_MEMORY])
        if floor is None:
            return Refusal(
                f"annotation {MIN_MEMORY} is {name_list.quoted(annotations[MIN_MEMORY])}: "
                'it must be an amount of memory, such as "10Gi", or "0" for any'
            )
        policy = replace(policy, min_memory=floor)
    return policy


def memory(written: str) -> Quantity | None:
    """A non-negative amount of bytes; None if it is not valid."""
    try:
        amount = quantity.parse(written)
    except quantity.InvalidQuantityError:
        return None
    return amount if amount.nanos >= 0 else None
