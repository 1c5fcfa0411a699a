"""The order of MIG profiles and of their replacements."""

import pytest

from croupier.core.availability import Availability
from croupier.core.cards import profile_size
from croupier.core.cards.profile_size import ProfileSize
from croupier.core.fallbacks import chain as fallback_chain
from croupier.core.fallbacks.chain import FallbackCandidate, FallbackChoice
from croupier.core.fallbacks.policy import FallbackPolicy
from croupier.core.pods.request_parser import GPU, MIG
from croupier.core.quantity import NANO, Quantity, parse


def named(name: str) -> ProfileSize:
    found = profile_size.parse(MIG + name.replace("+", "."))
    assert found is not None
    return found


def offer(*names: str) -> Availability:
    index = Availability()
    resources = [GPU if name == "gpu" else MIG + name.replace("+", ".") for name in names]
    index.set_node("node-1", dict.fromkeys(resources, Quantity(NANO)))
    return index


def chain(asked: str, *offered: str, **policy: object) -> list[str]:
    found = fallback_chain.candidates(named(asked), offer(*offered), FallbackPolicy(**policy))  # type: ignore[arg-type]  # by name
    return [one.profile.name if one.profile else "gpu" for one in found]


IN_ORDER = (
    *("1c.3g.20gb", "1c.3g.40gb"),
    *("1g.5gb", "1g.6gb", "1g.10gb", "1g.10gb+me", "1g.12gb", "1g.18gb", "1g.20gb", "1g.35gb"),
    *("2g.10gb", "2g.12gb", "2g.20gb", "2g.35gb"),
    *("3g.20gb", "3g.30gb", "3g.40gb", "3g.71gb"),
    *("4g.20gb", "4g.24gb", "4g.40gb", "4g.71gb"),
    *("7g.40gb", "7g.80gb", "7g.141gb"),
)


def test_profiles_rank_by_slices_then_memory_then_extras():
    ranked = [named(name) for name in IN_ORDER]
    whole = [one.name for one in sorted(ranked) if one.is_exclusive]
    assert whole == [name for name in IN_ORDER if "c." not in name]


def test_a_shared_profile_is_smaller_than_the_same_profile_for_one_pod():
    shared, own = named("1g.10gb+shared"), named("1g.10gb")

    assert named("1g.5gb") < shared < own < named("1g.10gb+me")
    assert chain("1g.10gb+shared", "1g.10gb", "gpu", direction="down") == ["gpu"]
    (first, *_) = fallback_chain.candidates(shared, offer("1g.10gb"), FallbackPolicy())
    assert (first.resource, first.step) == (own.resource, "larger")


def test_a_compute_instance_counts_by_its_own_slices():
    assert named("1g.10gb") < named("1c.3g.40gb") < named("2g.20gb") < named("2c.3g.40gb") < named("3g.20gb")


NO_PROFILE = (
    *(GPU, "nvidia.com/gpu.shared", "mig-1g.10gb", f"{MIG}8g.80gb", f"{MIG}1g.0gb", f"{MIG}1g.010gb"),
    *(f"{MIG}0g.10gb", f"{MIG}1g", f"{MIG}all-balanced", f"{MIG}1g.{'9' * 5000}gb", "cpu", ""),
)


@pytest.mark.parametrize("resource", NO_PROFILE, ids=lambda resource: resource[:40] or "nothing")
def test_other_resources_have_no_rank(resource):
    assert profile_size.parse(resource) is None


H100 = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "gpu")

CHAINS = {
    "nearest": ("3g.40gb", H100, {}, ["2g.20gb", "1g.20gb", "1g.10gb", "4g.40gb", "7g.80gb", "gpu"]),
    "down": ("3g.40gb", H100, {"direction": "down"}, ["2g.20gb", "1g.20gb", "1g.10gb", "gpu"]),
    "up": ("3g.40gb", H100, {"direction": "up"}, ["4g.40gb", "7g.80gb", "gpu"]),
    "off": ("3g.40gb", H100, {"direction": "off"}, []),
    "from the smallest": ("1g.5gb", ["1g.10gb", "2g.20gb", "gpu"], {}, ["1g.10gb", "2g.20gb", "gpu"]),
    "from the largest": ("7g.80gb", ["1g.10gb", "2g.20gb"], {}, ["2g.20gb", "1g.10gb"]),
    "without whole cards": ("2g.20gb", ["1g.10gb"], {}, ["1g.10gb"]),
    "nothing": ("2g.20gb", [], {}, []),
    "a floor": (
        "3g.40gb",
        H100,
        {"min_memory": parse("15Gi")},
        ["2g.20gb", "1g.20gb", "4g.40gb", "7g.80gb", "gpu"],
    ),
    "a floor above all profiles": ("3g.40gb", H100, {"min_memory": parse("100Gi")}, ["gpu"]),
    "a floor in other units": ("3g.40gb", ["2g.20gb"], {"min_memory": parse("21e9")}, ["2g.20gb"]),
    "a floor a byte too high": ("3g.40gb", ["2g.20gb"], {"min_memory": parse("21474836481")}, []),
    "nothing that is shared": (
        "2g.20gb",
        ["1g.10gb+shared", "1c.3g.40gb", "1g.10gb+me"],
        {},
        ["1g.10gb+me"],
    ),
    "for a share, one of its own": ("1g.10gb+shared", ["1g.10gb", "gpu"], {}, ["1g.10gb", "gpu"]),
}


@pytest.mark.parametrize(("asked", "offered", "policy", "expected"), CHAINS.values(), ids=CHAINS)
def test_the_order_of_the_candidates(asked, offered, policy, expected):
    assert chain(asked, *offered, **policy) == expected


CHOICES = {
    "the first, whether it is free or not": (False, {"2g.20gb": 2}, 0, False),
    "the first, if it is free": (True, {}, 0, True),
    "the first that is free": (True, {"2g.20gb": 2}, 1, True),
    "the first, if none is free": (True, {"2g.20gb": 2, "1g.10gb": 2}, 0, False),
}


@pytest.mark.parametrize(("prefer", "needs", "index", "free"), CHOICES.values(), ids=CHOICES)
def test_the_chosen_candidate(prefer, needs, index, free):
    """One of each profile is free; `needs` are the profiles of which the pod needs more."""
    offered = offer("1g.10gb", "2g.20gb")
    policy = FallbackPolicy(prefer_available=prefer)
    found = fallback_chain.candidates(named("3g.40gb"), offered, policy)

    def needed(candidate: FallbackCandidate) -> Quantity:
        return Quantity(needs.get(candidate.resource.removeprefix(MIG), 1) * NANO)

    choice = fallback_chain.choose(found, offered, policy, needed)

    assert choice == FallbackChoice(found[index], found[:index], free=free)


def test_a_resource_without_allocatable_is_not_a_candidate():
    index = offer("2g.20gb")
    index.set_node("node-2", {f"{MIG}1g.10gb": Quantity(0), GPU: Quantity(0)})

    found = fallback_chain.candidates(named("3g.40gb"), index, FallbackPolicy())

    assert [one.resource for one in found] == [f"{MIG}2g.20gb"]
