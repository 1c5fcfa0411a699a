"""One at a time, across processes: a lock that the kernel lifts when its holder dies."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

POLL = 0.2


@asynccontextmanager
async def held(path: Path, *, on_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Hold the lock at `path`. `on_wait` is called once if somebody else holds it now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        told = False
        while not _try(descriptor):
            if not told:
                on_wait()
                told = True
            await asyncio.sleep(POLL)
        yield
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
