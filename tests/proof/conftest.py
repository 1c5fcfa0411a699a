"""The size of the tests: small by default, full size with `--prove-full` (`make prove`)."""

import pytest

from croupier_lab.pytest_plugin import terminal_writer
from tests.proof.env import CI, FULL, ProofSize


@pytest.fixture(scope="session")
def size(pytestconfig: pytest.Config) -> ProofSize:
    return FULL if pytestconfig.getoption("--prove-full") else CI


@pytest.fixture
def tell(pytestconfig: pytest.Config):
    """Print past pytest's capture what a test ran and found."""
    return terminal_writer(pytestconfig)
