"""Which ResourceQuota blocks a pod, parsed from the API server's refusal to create it. Pure.

A pod that a quota blocks does not exist, but its owner (for example a ReplicaSet) records the refusal. The
figures in the refusal are outdated, so the current ones of the quota are used.
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
_MUST_SPECIFY: Final = re.compile(r"failed quota: (?P<quota>[a-z0-9.-]+): must specify (?P<what>[^\n]+)")
_REQUESTS: Final = "requests."
_RETRY_NOTE: Final = "the pod is created when its owner retries"


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    """The current figures of a quota."""

    hard: Mapping[str, Quantity]
    used: Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class QuotaRefusal:
    """A refusal by a quota."""

    quota: str
    requested: Mapping[str, Quantity] = field(default_factory=dict)
    must_specify: str = ""
    """The resources that the pod must specify because of the quota."""


def read(refusal: str) -> QuotaRefusal | None:
    """None if the refusal does not come from a quota."""
    if match := _EXCEEDED.search(refusal):
        return QuotaRefusal(match["quota"], _amounts(match["requested"]))
    if match := _MUST_SPECIFY.search(refusal):
        return QuotaRefusal(match["quota"], must_specify=match["what"])
    return None


def sentence(stop: QuotaRefusal, now: QuotaUsage | None) -> str:
    """`now` are the current figures of the quota; None if the quota does not exist any more."""
    if now is None:
        return f"ResourceQuota {stop.quota} blocked the pod and does not exist any more: {_RETRY_NOTE}"
    if stop.must_specify:
        return f"ResourceQuota {stop.quota} blocks the pod: it must specify {stop.must_specify}"
    short = [name for name, asked in stop.requested.items() if _exceeds(now, name, asked)]
    if not short:
        return f"ResourceQuota {stop.quota} blocked the pod and has enough left now: {_RETRY_NOTE}"
    shortages = " and ".join(
        f"it asks for {stop.requested[name]} of {name.removeprefix(_REQUESTS)}, and "
        f"{now.used.get(name, ZERO)} of {now.hard[name]} are used"
        for name in short
    )
    return f"ResourceQuota {stop.quota} blocks the pod: {shortages}"


def _exceeds(now: QuotaUsage, name: str, asked: Quantity) -> bool:
    return name in now.hard and now.hard[name] < now.used.get(name, ZERO) + asked


def _amounts(written: str) -> dict[str, Quantity]:
    """`requests.nvidia.com/gpu=2,pods=1`; invalid entries are left out."""
    amounts = {}
    for pair in written.split(","):
        name, equals, amount = pair.partition("=")
        try:
            if equals:
                amounts[name] = quantity.parse(amount)
        except InvalidQuantityError:
            continue
    return amounts
