"""The order of MIG profiles and of their replacements."""

import pytest

from croupier.core.availability import Availability
from croupier.core.cards import profile_size
from croupier.core.cards.profile_size import ProfileSize
from croupier.core.fallbacks import chain as fallback_chain
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
    "nearest": (chain("3g.40gb", *H100), ["2g.20gb", "1g.20gb", "1g.10gb", "4g.40gb", "7g.80gb", "gpu"]),
    "down": (chain("3g.40gb", *H100, direction="down"), ["2g.20gb", "1g.20gb", "1g.10gb", "gpu"]),
    "up": (chain("3g.40gb", *H100, direction="up"), ["4g.40gb", "7g.80gb", "gpu"]),
    "off": (chain("3g.40gb", *H100, direction="off"), []),
    "from the smallest": (chain("1g.5gb", "1g.10gb", "2g.20gb", "gpu"), ["1g.10gb", "2g.20gb", "gpu"]),
    "from the largest": (chain("7g.80gb", "1g.10gb", "2g.20gb"), ["2g.20gb", "1g.10gb"]),
    "without whole cards": (chain("2g.20gb", "1g.10gb"), ["1g.10gb"]),
    "nothing": (chain("2g.20gb"), []),
    "a floor": (chain("3g.40gb", *H100, min_memory=parse("15Gi"))[:2], ["2g.20gb", "1g.20gb"]),
    "a floor above all profiles": (chain("3g.40gb", *H100, min_memory=parse("100Gi")), ["gpu"]),
    "a floor in other units": (chain("3g.40gb", "2g.20gb", min_memory=parse("21e9")), ["2g.20gb"]),
    "a floor a byte too high": (chain("3g.40gb", "2g.20gb", min_memory=parse("21474836481")), []),
    "nothing that is shared": (
        chain("2g.20gb", "1g.10gb+shared", "1c.3g.40gb", "1g.10gb+me"),
        ["1g.10gb+me"],
    ),
    "for a share, one of its own": (chain("1g.10gb+shared", "1g.10gb", "gpu"), ["1g.10gb", "gpu"]),
}


@pytest.mark.parametrize(("found", "told"), CHAINS.values(), ids=CHAINS)
def test_the_order_of_the_candidates(found, told):
    assert found == told


def test_a_resource_without_allocatable_is_not_a_candidate():
    index = offer("2g.20gb")
    index.set_node("node-2", {f"{MIG}1g.10gb": Quantity(0), GPU: Quantity(0)})

    found = fallback_chain.candidates(named("3g.40gb"), index, FallbackPolicy())

    assert [one.resource for one in found] == [f"{MIG}2g.20gb"]
