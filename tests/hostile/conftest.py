"""The size of the floods: small by default, full size with `--prove-full` (`make prove`)."""

from dataclasses import dataclass

import pytest

from croupier_lab.pytest_plugin import terminal_writer
from tests.admission.conftest import api, env  # noqa: F401  # fixtures: the webhook on a real API server


@dataclass(frozen=True)
class AttackSize:
    objects: int
    """Objects that one tenant creates."""
    containers: int
    """Containers of one pod."""
    reviews: int
    """Requests of a flood; it ends earlier if all pods of the test are created."""
    pods: int
    """Pods that the others create while a flood runs."""


SMALL = AttackSize(objects=600, containers=1_000, reviews=2_000, pods=10)
FULL = AttackSize(objects=10_000, containers=5_000, reviews=50_000, pods=200)


@pytest.fixture(scope="session")
def size(pytestconfig: pytest.Config) -> AttackSize:
    return FULL if pytestconfig.getoption("--prove-full") else SMALL


@pytest.fixture
def tell(pytestconfig: pytest.Config):
    """Print past pytest's capture what a test measured."""
    return terminal_writer(pytestconfig)
