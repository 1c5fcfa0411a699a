"""Whether the data is current: when every watch was last known to be open, and which kinds cannot be read."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from croupier.kube.cache.reflector import Reflector
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import Forbidden, KubeError, NotFound
from croupier.kube.client.transport import ApiRequest

INTERVAL: Final = 2.0
TIMEOUT: Final = 3.0


class ApiContact:
    def __init__(
        self, api: Client, reflectors: Mapping[str, Reflector[Any]], clock: Clock | None = None
    ) -> None:
        """`reflectors` are named after their kinds."""
        self._api = api
        self._reflectors = reflectors
        self._clock = clock or SystemClock()
        self.last = 0.0
        """When the API server answered and every watch was open; 0 if never."""
        self.version = ""

    def answered(self) -> bool:
        """Whether every kind was listed, or cannot be listed."""
        return all(
            reflector.has_synced or reflector.last_error is not None
            for reflector in self._reflectors.values()
        )

    def unreadable(self) -> dict[str, str]:
        """The kinds that cannot be read, with the sentence of the API server."""
        return {
            kind: str(reflector.last_error)
            for kind, reflector in self._reflectors.items()
            if isinstance(reflector.last_error, Forbidden | NotFound)
            or (reflector.last_error is not None and not reflector.has_synced)
        }

    def forbidden(self) -> frozenset[str]:
        """The kinds whose objects are unknown. A kind that is not installed has none."""
        return frozenset(
            kind
            for kind, reflector in self._reflectors.items()
            if reflector.last_error is not None and not isinstance(reflector.last_error, NotFound)
            if isinstance(reflector.last_error, Forbidden) or not reflector.has_synced
        )

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self.check()
            await self._clock.sleep(INTERVAL)

    async def check(self) -> None:
        now = self._clock.now().timestamp()
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await self._api.raw(ApiRequest("GET", "/version"))
        except (KubeError, TimeoutError):
            return
        self.version = str(msgspec.json.decode(answer).get("gitVersion", ""))
        if all(map(_is_open, self._reflectors.values())):
            self.last = now


def _is_open(reflector: Reflector[Any]) -> bool:
    return reflector.last_error is None or isinstance(reflector.last_error, Forbidden | NotFound)
