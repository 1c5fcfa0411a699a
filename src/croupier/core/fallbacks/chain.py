"""What may take the place of a missing MIG profile, best first.

Smaller ones before larger ones, the nearest of each first, the whole card last: so that a
cluster that lacks one profile wastes as little as possible of another.
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
    """What the nodes of the cluster offer."""

    def exists(self, resource: str) -> bool:
        """Some node has at least one allocatable."""
        ...

    def resources(self) -> Collection[str]: ...

    def most_free(self, resource: str) -> Quantity:
        """The most of it that is free now on one node."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    resource: str
    step: Step
    profile: Profile | None = None
    """None is the whole card."""


@dataclass(frozen=True, slots=True)
class Choice:
    candidate: Candidate
    passed: tuple[Candidate, ...] = ()
    """Those before it in the chain that exist but have not enough free on any one node."""
    free: bool = False
    """One node has enough of it free now; only looked at if the policy prefers that."""


def candidates(asked: Profile, offer: Offer, policy: Policy) -> tuple[Candidate, ...]:
    """All that exists and may take its place, in the order of the chain."""
    smaller, larger = _neighbours(asked, offer, policy)
    by_direction = {"nearest": (*smaller, *larger), "down": smaller, "up": larger, "off": ()}
    whole = policy.direction != "off" and offer.exists(GPU)
    return (*by_direction[policy.direction], *((Candidate(GPU, "whole card"),) if whole else ()))


def choose(
    chain: tuple[Candidate, ...], offer: Offer, policy: Policy, needed: Callable[[Candidate], Quantity]
) -> Choice | None:
    """The first of the chain; if the policy prefers it, the first of which one node has enough free now."""
    if not chain:
        return None
    if policy.prefer_available:
        for index, candidate in enumerate(chain):
            if needed(candidate) <= offer.most_free(candidate.resource):
                return Choice(candidate, chain[:index], free=True)
    return Choice(chain[0])


def count(asked: Profile, amount: int, candidate: Candidate, policy: Policy) -> int:
    """How many of the candidate take the place of `amount` of what was asked for."""
    if policy.quantities == "keep" or candidate.profile is None:
        return amount  # no resource tells how much memory a whole card has: one for one
    return -(-amount * asked.memory // candidate.profile.memory)


def _neighbours(
    asked: Profile, offer: Offer, policy: Policy
) -> tuple[tuple[Candidate, ...], tuple[Candidate, ...]]:
    """The smaller ones and the larger ones, the nearest first."""
    floor = policy.min_memory.nanos if policy.min_memory is not None else 0
    fitting = sorted(
        one
        for resource in offer.resources()
        if (one := profile.read(resource)) is not None
        and one.is_its_own
        and one.memory * _GIB >= floor
        and offer.exists(resource)
    )
    smaller = tuple(Candidate(one.resource, "smaller", one) for one in reversed(fitting) if one < asked)
    larger = tuple(Candidate(one.resource, "larger", one) for one in fitting if one > asked)
    return smaller, larger
