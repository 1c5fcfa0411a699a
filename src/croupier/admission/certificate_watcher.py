"""Keeps the served certificate in sync with its source: at once, when woken, and at intervals."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from croupier.kube.client.backoff import Backoff
from croupier.kube.client.errors import KubeError

RETRIES: Final = Backoff(first=0.2, most=15.0)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class CertificateWatcher:
    recheck: float
    """Seconds between two syncs that succeed."""
    chance: Callable[[], float] = random.random
    loaded: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    answering: bool = field(init=False, default=False)
    last_error: str = field(init=False, default="")
    """The error of the last sync; empty if it succeeded."""
    _wake: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def wake(self, *_: object) -> None:
        """Sync now; can subscribe to a store."""
        self._wake.set()

    def answer(self) -> None:
        """The server listens: from now on the webhook may be registered."""
        self.answering = True
        self.wake()

    def missing(self) -> str | None:
        """For a readiness check."""
        if self.loaded.is_set():
            return None
        return f"no certificate yet{': ' if self.last_error else ''}{self.last_error}"

    async def run(self, sync: Callable[[], Awaitable[None]]) -> None:
        """Until cancelled. After a failure the current certificate stays in use."""
        failures = 0
        while True:
            self._wake.clear()
            try:
                await sync()
                failures, self.last_error, pause = 0, "", self.recheck
            except KubeError as error:
                if str(error) != self.last_error:
                    log.warning(
                        f"the certificate of the webhook cannot be checked: {error}", error=str(error)
                    )
                failures, self.last_error = failures + 1, str(error)
                pause = min(self.recheck, RETRIES.delay(failures, self.chance()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
