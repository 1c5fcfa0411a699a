"""Waiting, for tests of a real node: they talk to it through kubectl and files, not by the event loop."""

import time
from collections.abc import Callable
from typing import Any

WITHIN = 60.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """The first truthy answer; the machine may be busy, so the deadline is generous."""
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"not within {WITHIN:g} seconds: {what}")
