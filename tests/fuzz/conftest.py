"""How long inputs are fuzzed: some hundred examples in every test run, many more with `--prove-full`."""

import warnings
from collections.abc import Callable
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import unit_selection

EXAMPLES = 200
FULL = 20_000
UNIT = 40


class Fuzz(Protocol):
    """Calls `check` with examples of the strategy; what `check` raises fails the test."""

    def __call__(self, strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None: ...


@pytest.fixture
def fuzz(pytestconfig: pytest.Config) -> Fuzz:
    unit = UNIT if pytestconfig.getoption(unit_selection.OPTION) else EXAMPLES
    count = FULL if pytestconfig.getoption("--prove-full") else unit
    slow = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.nested_given)

    def run(strategy: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
        warnings.filterwarnings("ignore", "Generating overly large repr")  # inputs may be large
        settings(max_examples=count, deadline=None, suppress_health_check=slow)(given(strategy)(check))()

    return run
