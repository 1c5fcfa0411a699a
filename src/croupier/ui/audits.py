"""The checks of `croupier doctor`, run as the user, at most once a minute for each."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import KubeError
from croupier.ui.user_clients import UserClients
from croupier.ui.viewer import Viewer

INTERVAL: Final = 60.0
TIMEOUT: Final = 20.0
MAX_KEPT: Final = 200

RunChecks = Callable[[Client], Awaitable[dict[str, Any]]]
"""The JSON of `croupier doctor -o json`."""


class Audits:
    def __init__(self, users: UserClients, run_checks: RunChecks, clock: Clock | None = None) -> None:
        self._users = users
        self._run_checks = run_checks
        self._clock = clock or SystemClock()
        self._kept: OrderedDict[tuple[str, tuple[str, ...]], tuple[float, asyncio.Task[dict[str, Any]]]]
        self._kept = OrderedDict()

    async def of(self, viewer: Viewer) -> dict[str, Any]:
        """The last answer for the viewer, or a new one. Viewers who ask at the same time share it."""
        key, now = (viewer.user, viewer.groups), self._clock.monotonic()
        kept = self._kept.get(key)
        if kept is None or now - kept[0] >= INTERVAL:
            kept = self._kept[key] = now, asyncio.create_task(self._run(viewer))
            self._kept.move_to_end(key)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return await asyncio.shield(kept[1])

    async def _run(self, viewer: Viewer) -> dict[str, Any]:
        try:
            async with asyncio.timeout(TIMEOUT):
                return {"checks": await self._run_checks(await self._users.client(viewer))}
        except TimeoutError:
            return {
                "checks": None,
                "why": f"the checks took longer than {TIMEOUT:g} s; use `croupier doctor`",
            }
        except KubeError as error:
            return {"checks": None, "why": f"the checks need rights that you do not have: {error}"}
        except Exception as error:
            return {"checks": None, "why": f"the checks failed: {error!r}; use `croupier doctor`"}
