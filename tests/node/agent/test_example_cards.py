"""The files of examples/cards match its README (tests/proof/test_walk.py runs the walkthrough)."""

import re
from pathlib import Path

import pytest
import yaml

from croupier.core.cards import catalogue
from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.refusal import Refusal
from croupier.core.pods import request_parser
from croupier.node.agent import mig_config

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "examples/cards"
WALK = (FOLDER / "README.md").read_text()
CARDS = [
    GpuCard(index, f"0000:1{index}:00.0", f"GPU-{index}", kinds=catalogue.find("SIM-70GB").kinds)
    for index in range(4)
]

LAYOUTS = {
    "small": {"1g.10gb": 28},
    "medium": {"2g.20gb": 8, "3g.30gb": 4},
    "whole": {},
}


@pytest.mark.parametrize(("name", "expected"), LAYOUTS.items())
def test_the_layouts_give_the_devices_of_the_walkthrough(name, expected):
    targets = mig_config.targets((FOLDER / f"{name}.yaml").read_text(), CARDS)

    assert not isinstance(targets, Refusal)
    pieces = [piece for layout in targets.values() for piece in layout for _ in range(piece[1])]
    assert {profile: pieces.count((profile, number)) for profile, number in set(pieces)} == expected
    assert len(targets) == 4


def test_the_impossible_layout_is_refused():
    refused = mig_config.targets((FOLDER / "impossible.yaml").read_text(), CARDS)

    assert isinstance(refused, Refusal)
    assert "a card can have at most 2 of 3g.30gb" in str(refused)


def test_the_readme_uses_exactly_the_existing_files():
    named = set(re.findall(r"examples/cards/([a-z]+\.yaml)", WALK))

    assert named == {path.name for path in FOLDER.glob("*.yaml")}


def test_the_pods_request_resources_of_the_pool_and_the_layout():
    slice_, half = (yaml.safe_load((FOLDER / name).read_text()) for name in ("slice.yaml", "half.yaml"))
    pool = yaml.safe_load((FOLDER / "pool.yaml").read_text())

    (asked,) = slice_["spec"]["containers"][0]["resources"]["limits"]
    assert asked == request_parser.mig_resource("1g.10gb")
    (asked,) = half["spec"]["containers"][0]["resources"]["limits"]
    assert asked == f"gpu.deckhouse.io/{pool['metadata']['name']}"
    assert half["metadata"]["namespace"] in pool["spec"]["access"]["namespaces"]
