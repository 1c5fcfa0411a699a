"""Synchronous polling, for tests of a real node."""

import time
from collections.abc import Callable
from typing import Any

TIMEOUT = 60.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """Poll until the condition is truthy and return its value."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"timeout after {TIMEOUT:g} seconds: {what}")
