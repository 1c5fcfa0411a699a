"""A file lock between processes, released by the kernel when its holder exits."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

POLL = 0.2


@asynccontextmanager
async def held(path: Path, *, on_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Hold the lock at `path`. `on_wait` is called once if the lock is not free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        notified = False
        while not _try(descriptor):
            if not notified:
                on_wait()
                notified = True
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
