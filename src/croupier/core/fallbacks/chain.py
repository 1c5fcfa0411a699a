"""The candidates that may replace a missing MIG profile, best first.

Smaller profiles come before larger ones, the nearest of each first, and the whole card last, so
that a cluster that lacks one profile wastes as little as possible of another.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

from croupier.core.cards import profile
from croupier.core.cards.profile import Profile
from croupier.core.fallbacks.policy import Policy
from croupier.core.pods.request import GPU
from croupier.core.quantity import NANO, Quantity

Step: TypeAlias = Literal["smaller", "larger", "whole card"]

_GIB: Final = 1024**3 * NANO


class Offer(Protocol):
    """The allocatable and free resources of the nodes."""

    def exists(self, resource: str) -> bool:
        """Whether at least one node has it allocatable."""
        ...

    def resources(self) -> Collection[str]: ...

    def most_free(self, resource: str) -> Quantity:
        """The largest free amount on one node."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    resource: str
    step: Step
    profile: Profile | None = None
    """None for the whole card."""


@dataclass(frozen=True, slots=True)
class Choice:
    candidate: Candidate
    passed: tuple[Candidate, ...] = ()
    """Earlier candidates that exist, but of which no node has enough free."""
    free: bool = False
    """One node has enough of it free now; checked only if the policy prefers available resources."""


def candidates(asked: Profile, offer: Offer, policy: Policy) -> tuple[Candidate, ...]:
    """All existing resources that may replace the profile, in order of preference."""
    smaller, larger = _neighbours(asked, offer, policy)
    by_direction = {"nearest": (*smaller, *larger), "down": smaller, "up": larger, "off": ()}
    whole = policy.direction != "off" and offer.exists(GPU)
    return (*by_direction[policy.direction], *((Candidate(GPU, "whole card"),) if whole else ()))


def choose(
    chain: tuple[Candidate, ...], offer: Offer, policy: Policy, needed: Callable[[Candidate], Quantity]
) -> Choice | None:
    """The first candidate; if the policy prefers it, the first of which one node has enough free now."""
    if not chain:
        return None
    if policy.prefer_available:
        for index, candidate in enumerate(chain):
            if needed(candidate) <= offer.most_free(candidate.resource):
                return Choice(candidate, chain[:index], free=True)
    return Choice(chain[0])


def count(asked: Profile, amount: int, candidate: Candidate, policy: Policy) -> int:
    """How many of the candidate replace `amount` of the requested profile."""
    if policy.quantities == "keep" or candidate.profile is None:
        return amount  # the memory of a whole card is unknown here: one for one
    return -(-amount * asked.memory // candidate.profile.memory)


def _neighbours(
    asked: Profile, offer: Offer, policy: Policy
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
    """The smaller and the larger profiles, the nearest first."""
    floor = policy.min_memory.nanos if policy.min_memory is not None else 0
    fitting = sorted(
        offered
        for resource in offer.resources()
        if (offered := profile.read(resource)) is not None
        and offered.is_its_own
        and offered.memory * _GIB >= floor
        and offer.exists(resource)
    )
    smaller = tuple(Candidate(fit.resource, "smaller", fit) for fit in reversed(fitting) if fit < asked)
    larger = tuple(Candidate(fit.resource, "larger", fit) for fit in fitting if fit > asked)
    return smaller, larger
