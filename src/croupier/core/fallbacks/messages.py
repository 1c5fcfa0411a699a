"""The messages of the fallback, for kubectl warnings and Events.

With names of usual length they stay below the 256 characters after which the API server may truncate a
warning.
"""

from collections.abc import Sequence
from typing import Final

from croupier.core.cards import profile_size
from croupier.core.fallbacks.chain import FallbackChoice, ResourceOffer
from croupier.core.fallbacks.policy import FallbackPolicy
from croupier.core.model import name_list
from croupier.core.pods import request_parser
from croupier.core.quantity import Quantity

STAYS_PENDING: Final = "the pod waits until one does"

_MOST_CONTAINERS: Final = 2
_MOST_OFFERED: Final = 5
_OTHER: Final = {"nearest": "other", "down": "smaller", "up": "larger", "off": "other"}


def short(resource: str) -> str:
    """`2g.20gb` for `nvidia.com/mig-2g.20gb`, `gpu` for the whole card."""
    named = request_parser.profile(resource)
    return "gpu" if resource == request_parser.GPU else named or resource


def annotation(rewrites: Sequence[tuple[str, tuple[str, str]]]) -> str:
    """`2g.20gb->1g.10gb` for a single pair; otherwise one entry per profile and container."""
    pairs = {pair for _, pair in rewrites}
    if len(pairs) == 1:
        return "->".join(pairs.pop())
    return ",".join(f"{container}={source}->{target}" for container, (source, target) in rewrites)


def rewritten(source: str, choice: FallbackChoice, containers: Sequence[str], policy: FallbackPolicy) -> str:
    gets = "gets" if len(containers) == 1 else "get"
    target = choice.candidate.resource
    return (
        f"no node offers {source}: {_container_list(containers)} {gets} {target} instead, "
        f"{_why(choice, policy)}"
    )


def no_replacement(
    resource: str, containers: Sequence[str], offer: ResourceOffer, policy: FallbackPolicy
) -> str:
    """Why the profile is not replaced."""
    head = f"no node offers {resource} ({_container_list(containers)})"
    if profile_size.parse(resource) is None:
        return f"{head}, which is not a MIG profile such as {request_parser.MIG}1g.10gb"
    if policy.direction == "off":
        return f"{head}, and fallback is off: {_offered(offer)}"
    floor = f", at least {policy.min_memory}" if policy.min_memory else ""
    rule = f"policy {policy.direction}{floor}"
    return f"{head}, nor a replacement for it ({rule}): {_offered(offer)}"


def requests_differ_from_limits(container: str, resource: str, asked: Quantity, limit: Quantity) -> str:
    return (
        f"container {container} requests {asked} of {resource} and limits it to {limit}; they must be equal"
    )


def _why(choice: FallbackChoice, policy: FallbackPolicy) -> str:
    taken = policy.prefer_available and not choice.free
    return f"{_which(choice, policy)}{', though nothing has enough free now' if taken else ''}"


def _which(choice: FallbackChoice, policy: FallbackPolicy) -> str:
    """What the replacement is, and why no better candidate was chosen."""
    step, floor = choice.candidate.step, _floor(policy)
    if step == "whole card":
        card = "a whole card, whatever its memory" if floor else "a whole card"
        if choice.passed:
            return f"{card}, as no profile{floor} has enough free now"
        return f"{card}, as there is no {_OTHER[policy.direction]} profile{floor}"
    if choice.passed:
        return f"the nearest {step} profile{floor} with enough free on one node now"
    if step == "larger" and policy.direction == "nearest":
        return f"the nearest larger profile{floor}, as there is no smaller one"
    return f"the nearest {step} profile{floor} there is"


def _floor(policy: FallbackPolicy) -> str:
    return f" of at least {policy.min_memory}" if policy.min_memory else ""


def _container_list(containers: Sequence[str]) -> str:
    if len(containers) == 1:
        return f"container {containers[0]}"
    if len(containers) == 2:
        return f"containers {containers[0]} and {containers[1]}"
    return f"containers {name_list.shortened(containers, _MOST_CONTAINERS)}"


def _offered(offer: ResourceOffer) -> str:
    """The offered resources, the largest first."""
    existing = (name for name in offer.resources() if offer.exists(name))
    profiles = sorted(
        (read for name in existing if (read := profile_size.parse(name)) is not None), reverse=True
    )
    names = [*(("gpu",) if offer.exists(request_parser.GPU) else ()), *(read.name for read in profiles)]
    if not names:
        return "nodes offer neither MIG profiles nor whole cards"
    return f"nodes offer {name_list.shortened(names, _MOST_OFFERED)}"
