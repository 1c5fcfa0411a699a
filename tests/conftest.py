"""Configuration of all tests."""

import gc
import os
import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import Phase, settings

from croupier.api import crds
from croupier.cli.cluster import TIMEOUT_VARIABLE
from croupier_lab import shared_cluster
from croupier_lab.pytest_plugin import RUN

pytest_plugins = ["tests.unit_selection", "tests.run_report"]

# Machines are shared, so the duration of an example is not meaningful.
settings.register_profile("croupier", deadline=None)
# A failed example is enough to notice a mutant: it is not shrunk.
PHASES = (Phase.explicit, Phase.generate)
settings.register_profile(
    "mutate", deadline=None, max_examples=20, derandomize=True, database=None, phases=PHASES
)
settings.load_profile("croupier")

# For the same reason, commands wait longer for the first answer of the API server.
os.environ.setdefault(TIMEOUT_VARIABLE, "60")

# Background shells ignore SIGINT, and child processes would inherit this.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Collecting tests leaves a million objects, which the garbage collector would search each time.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--prove-full", action="store_true", help="run the proofs at full size (make prove)")
    parser.addoption(
        "--write-screenshots", action="store_true", help="write the screenshots of the documentation again"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run files with a SECONDS constant first, the longest at the beginning.

    Each file runs on one worker, so a long file that starts last would delay the end of the run.
    """
    items.sort(key=lambda item: getattr(getattr(item, "module", None), "SECONDS", 0), reverse=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, bool, bool]:
    """Remove and report objects that a test file left in the shared lab."""
    done = yield
    lab = item.config.stash[RUN].raised
    if lab is not None and (nextitem is None or nextitem.path != item.path):
        kinds = (shared_cluster.NODES, *shared_cluster.cluster_scoped(crds.definitions()))
        if left := shared_cluster.snapshot(lab.cluster, kinds):
            names = ", ".join(map(str, sorted(left)))
            print(f"{item.path.name} left {names} behind", file=sys.__stderr__)
            shared_cluster.restore(lab.cluster, kinds, frozenset(), spare_real_nodes=False)
    return done
