"""The size of the tests: small by default, full size with `--prove-full` (`make prove`)."""

import pytest

from croupier_lab.pytest_plugin import terminal_writer
from tests.proof.env import CI, FULL, ProofSize


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--prove-full", action="store_true", help="run the proofs of tests/proof at full size")


@pytest.fixture(scope="session")
def size(pytestconfig: pytest.Config) -> ProofSize:
    return FULL if pytestconfig.getoption("--prove-full", default=False) else CI


@pytest.fixture
def tell(pytestconfig: pytest.Config):
    """Print past pytest's capture what a test ran and found."""
    return terminal_writer(pytestconfig)
