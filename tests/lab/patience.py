"""Synchronous polling, for tests of a real node."""

import time
from collections.abc import Callable
from typing import Any

WITHIN = 60.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll until the condition is truthy and return its value."""
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"timeout after {WITHIN:g} seconds: {what}")
