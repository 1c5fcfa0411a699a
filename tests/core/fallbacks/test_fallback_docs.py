"""docs/fallback.md is correct: its order of profiles, its table of examples."""

import re
from pathlib import Path

import pytest

from croupier.core import jsonpatch
from croupier.core.availability import Availability
from croupier.core.cards import profile_size
from croupier.core.fallbacks import fallback
from croupier.core.fallbacks.fallback import FallbackChanges, FallbackUnchanged
from croupier.core.fallbacks.policy import DIRECTIONS, FallbackPolicy
from croupier.core.pods import podspec_view
from croupier.core.pods.podspec_view import PodSpecView
from croupier.core.pods.request_parser import GPU, MIG
from croupier.core.quantity import NANO, Quantity, parse

PAGE = (Path(__file__).resolve().parents[3] / "docs/fallback.md").read_text()
TABLE = PAGE[PAGE.index("## Examples") : PAGE.index("## What is reported")]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.splitlines()
    if line.startswith("| `")
]


def resource(name: str) -> str:
    return GPU if name == "gpu" else MIG + name.replace("+", ".")


def counts(cell: str) -> dict[str, int]:
    return {resource(name): int(count) for name, count in re.findall(r"`([^`]+): (\d+)`", cell)}


def policy(cell: str) -> FallbackPolicy:
    words = re.findall(r"`([^`]+)`", cell)
    return FallbackPolicy(
        direction=next((direction for direction in DIRECTIONS if direction in words), "nearest"),
        quantities="scale" if "scale" in words else "keep",
        min_memory=next((parse(word) for word in words if word.endswith("Gi")), None),
    )


def test_the_table_can_be_parsed():
    assert len(ROWS) >= 10


@pytest.mark.parametrize(
    ("asks", "offers", "by", "gets", "annotation"), ROWS, ids=[" - ".join(row) for row in ROWS]
)
def test_an_example_is_correct(asks, offers, by, gets, annotation):
    index = Availability()
    index.set_node("node-1", {resource(name): Quantity(NANO) for name in re.findall(r"`([^`]+)`", offers)})
    pod = {"spec": {"containers": [{"name": "main", "resources": {"limits": counts(asks)}}]}}
    spec = podspec_view.read(pod)
    assert isinstance(spec, PodSpecView)

    decision = fallback.decide(spec, index, policy(by))

    assert isinstance(decision, FallbackChanges | FallbackUnchanged)
    made = decision if isinstance(decision, FallbackChanges) else FallbackChanges(())
    after = podspec_view.read(jsonpatch.apply(pod, made.operations))
    assert isinstance(after, PodSpecView)
    assert {name: amount.whole for name, amount in after.containers[0].asks.items()} == counts(gets)
    assert made.annotation == annotation.strip("`")
    assert bool(isinstance(decision, FallbackUnchanged) and decision.warnings) == ("waits" in gets)


def test_profiles_rank_as_documented():
    found = re.search(r"extras: `([^`]+)`", PAGE)
    assert found is not None
    ladder = [profile_size.parse(resource(name)) for name in found[1].split(" < ")]

    assert all(one is not None for one in ladder)
    assert sorted(one for one in ladder if one is not None) == ladder
