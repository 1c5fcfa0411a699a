"""What all tests share."""

import signal

import pytest
from hypothesis import settings

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
