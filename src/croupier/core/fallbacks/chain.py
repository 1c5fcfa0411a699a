"""The candidates that may replace a missing MIG profile, best first.

Smaller profiles come before larger ones, the nearest of each first, and the whole card last, so
that a cluster that lacks one profile wastes as little as possible of another.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from croupier.core.cards import profile_size
from croupier.core.cards.profile_size import ProfileSize
from croupier.core.fallbacks.policy import FallbackPolicy
from croupier.core.pods.request_parser import GPU
from croupier.core.quantity import NANO, Quantity

FallbackStep: TypeAlias = Literal["smaller", "larger", "whole card"]

_GIB: Final = 1024**3 * NANO


class ResourceOffer(Protocol):
    """The allocatable and free resources of the nodes."""

    def exists(self, resource: str) -> bool:
        """Whether at least one node has it allocatable."""
        ...

    def resources(self) -> Collection[str]: ...

    def max_free(self, resource: str) -> Quantity:
        """The largest free amount on one node."""
        ...


@dataclass(frozen=True, slots=True)
class FallbackCandidate:
    resource: str
    step: FallbackStep
    profile: ProfileSize | None = None
    """None for the whole card."""


@dataclass(frozen=True, slots=True)
class FallbackChoice:
    candidate: FallbackCandidate
    passed: tuple[FallbackCandidate, ...] = ()
    """Earlier candidates that exist, but of which no node has enough free."""
    free: bool = False
    """One node has enough of it free now; checked only if the policy prefers available resources."""


def candidates(
    asked: ProfileSize, offer: ResourceOffer, policy: FallbackPolicy
) -> tuple[FallbackCandidate, ...]:
    """All existing resources that may replace the profile, in order of preference."""
    smaller, larger = _neighbours(asked, offer, policy)
    by_direction = {"nearest": (*smaller, *larger), "down": smaller, "up": larger, "off": ()}
    whole = policy.direction != "off" and offer.exists(GPU)
    return (*by_direction[policy.direction], *((FallbackCandidate(GPU, "whole card"),) if whole else ()))


def choose(
    chain: tuple[FallbackCandidate, ...],
    offer: ResourceOffer,
    policy: FallbackPolicy,
    needed: Callable[[FallbackCandidate], Quantity],
) -> FallbackChoice | None:
    """The first candidate; if the policy prefers it, the first of which one node has enough free now."""
    if not chain:
        return None
    if policy.prefer_available:
        for index, candidate in enumerate(chain):
            if needed(candidate) <= offer.max_free(candidate.resource):
                return FallbackChoice(candidate, chain[:index], free=True)
    return FallbackChoice(chain[0])


def count(asked: ProfileSize, amount: int, candidate: FallbackCandidate, policy: FallbackPolicy) -> int:
    """How many of the candidate replace `amount` of the requested profile."""
    if policy.quantities == "keep" or candidate.profile is None:
        return amount  # the memory of a whole card is unknown here: one for one
    return -(-amount * asked.memory // candidate.profile.memory)


def _neighbours(
    asked: ProfileSize, offer: ResourceOffer, policy: FallbackPolicy
) -> tuple[tuple[FallbackCandidate, ...], tuple[FallbackCandidate, ...]]:
    """The smaller and the larger profiles, the nearest first."""
    floor = policy.min_memory.nanos if policy.min_memory is not None else 0
    fitting = sorted(
        offered
        for resource in offer.resources()
        if (offered := profile_size.parse(resource)) is not None
        and offered.is_exclusive
        and offered.memory * _GIB >= floor
        and offer.exists(resource)
    )
    smaller = tuple(
        FallbackCandidate(fit.resource, "smaller", fit) for fit in reversed(fitting) if fit < asked
    )
    larger = tuple(FallbackCandidate(fit.resource, "larger", fit) for fit in fitting if fit > asked)
    return smaller, larger
