"""Every panel of the dashboard shows something: a real Prometheus answers its queries after a day's work."""

import json
import math
from pathlib import Path

import pytest

from tests.install import prometheus

DASHBOARD = Path(__file__).resolve().parents[2] / "deployments/monitoring/dashboard.json"
QUERIES = [
    (panel["title"], target["expr"])
    for panel in json.loads(DASHBOARD.read_text())["panels"]
    for target in panel.get("targets", ())
]


@pytest.fixture(autouse=True)
def _needs_prometheus():
    if prometheus.program() is None:
        pytest.skip("prometheus is not here: `make setup` fetches the Debian package where it can")


@pytest.mark.parametrize(
    ("panel", "expression"), QUERIES, ids=[f"{one}-{at}" for at, (one, _) in enumerate(QUERIES)]
)
def test_it_shows_something(lived_in, panel, expression):
    answer = lived_in.shown[expression]

    assert answer, f"{panel} is empty: {expression}"
    assert not all(math.isnan(float(one["value"][1])) for one in answer), (
        f"{panel} has no number: {expression}"
    )
