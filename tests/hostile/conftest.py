"""The size of the floods: small by default, full size with `--prove-full` (`make prove`)."""

from dataclasses import dataclass

import pytest

from croupier_lab.pytest_plugin import terminal_writer


@dataclass(frozen=True)
class AttackSize:
    objects: int
    """Objects that one tenant creates."""
    containers: int
    """Containers of one pod."""
    reviews: int
    """Requests of a flood."""


SMALL = AttackSize(objects=600, containers=1_000, reviews=600)
FULL = AttackSize(objects=10_000, containers=5_000, reviews=6_000)


@pytest.fixture(scope="session")
def size(pytestconfig: pytest.Config) -> AttackSize:
    return FULL if pytestconfig.getoption("--prove-full") else SMALL


@pytest.fixture
def tell(pytestconfig: pytest.Config):
    """Print past pytest's capture what a test measured."""
    return terminal_writer(pytestconfig)
