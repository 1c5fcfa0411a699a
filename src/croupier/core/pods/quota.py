"""Which ResourceQuota stops a pod, read from what the API server told whoever wanted to create it. Pure.

A pod that a quota stops does not exist, so nothing can be looked up about it; but its owner wrote down the
refusal. The figures in it are of that moment, so those of now go before them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from croupier.core import quantity
from croupier.core.quantity import ZERO, InvalidQuantityError, Quantity

_EXCEEDED: Final = re.compile(
    r"exceeded quota: (?P<quota>[a-z0-9.-]+), requested: (?P<requested>\S+), used: "
)
_UNSAID: Final = re.compile(r"failed quota: (?P<quota>[a-z0-9.-]+): must specify (?P<what>[^\n]+)")
_REQUESTS: Final = "requests."
_SOON: Final = "it comes when its owner tries again"


@dataclass(frozen=True, slots=True)
class Limits:
    """A quota as it stands now."""

    hard: Mapping[str, Quantity]
    used: Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class Stop:
    """A refusal by a quota."""

    quota: str
    requested: Mapping[str, Quantity] = field(default_factory=dict)
    unsaid: str = ""
    """What the pod must say so that the quota can count it."""


def read(refusal: str) -> Stop | None:
    """None if it was no quota that refused."""
    if found := _EXCEEDED.search(refusal):
        return Stop(found["quota"], _amounts(found["requested"]))
    if found := _UNSAID.search(refusal):
        return Stop(found["quota"], unsaid=found["what"])
    return None


def sentence(stop: Stop, now: Limits | None) -> str:
    """`now` is the quota as it stands; None if there is no such quota any more."""
    if now is None:
        return f"ResourceQuota {stop.quota} stopped it and is gone now: {_SOON}"
    if stop.unsaid:
        return f"ResourceQuota {stop.quota} stops it: it must say {stop.unsaid}"
    short = [name for name, asked in stop.requested.items() if _over(now, name, asked)]
    if not short:
        return f"ResourceQuota {stop.quota} stopped it and has room now: {_SOON}"
    told = " and ".join(
        f"it asks for {stop.requested[name]} of {name.removeprefix(_REQUESTS)}, and "
        f"{now.used.get(name, ZERO)} of {now.hard[name]} are used"
        for name in short
    )
    return f"ResourceQuota {stop.quota} stops it: {told}"


def _over(now: Limits, name: str, asked: Quantity) -> bool:
    return name in now.hard and now.hard[name] < now.used.get(name, ZERO) + asked


def _amounts(written: str) -> dict[str, Quantity]:
    """`requests.nvidia.com/gpu=2,pods=1`; what cannot be read is left out."""
    amounts = {}
    for pair in written.split(","):
        name, equals, amount = pair.partition("=")
        try:
            if equals:
                amounts[name] = quantity.parse(amount)
        except InvalidQuantityError:
            continue
    return amounts
