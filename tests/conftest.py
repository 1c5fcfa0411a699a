"""What all tests share."""

import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import settings

from croupier.api import crds
from croupier.lab import borrowed
from croupier.lab.pytest_plugin import RUN

# Machines are shared and noisy: how long one example takes says nothing about the code.
settings.register_profile("croupier", deadline=None)
settings.load_profile("croupier")

# A run that a shell put into the background ignores Ctrl-C, and so would every program a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that say how many SECONDS they take come first, the longest of them at the very beginning.

    Each file runs on one worker. One of five minutes that began last would keep all others waiting.
    """
    items.sort(key=lambda item: getattr(getattr(item, "module", None), "SECONDS", 0), reverse=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, bool, bool]:
    """What one file leaves in the shared lab shall not fail another; that it did is said aloud."""
    done = yield
    lab = item.config.stash[RUN].raised
    if lab is not None and (nextitem is None or nextitem.path != item.path):
        kinds = borrowed.cluster_scoped(crds.definitions())
        told = lab.kubectl("get", ",".join((borrowed.NODES, *kinds)), "-o", "name", check=False)
        if left := told.stdout.split():
            print(f"{item.path.name} left {', '.join(left)} behind", file=sys.__stderr__)
            borrowed.restore(lab.cluster, kinds, frozenset(), spare_real_nodes=False)
    return done
