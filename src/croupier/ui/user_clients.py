"""API clients that act as the user of the page: writes are decided by the user's own rights.

local: the client of the process, which has the user's kubeconfig. bearer and token: the user's token and
nothing of the page. headers: impersonation with the page's account, which the API server limits to the verbs
and kinds that the account may impersonate for (KEP-5284).
"""

import asyncio
import contextlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from croupier.kube.client import api_client
from croupier.kube.client.api_client import Client
from croupier.kube.client.config import Config
from croupier.kube.client.retry import RequestObserver, ignore_attempt
from croupier.ui import session_cookie, token_review
from croupier.ui.viewer import Viewer

FIELD_MANAGER: Final = "croupier-ui"
MAX_CLIENTS: Final = 64
CLOSE_DELAY: Final = 120.0
"""Seconds until an evicted client is closed: longer than a request that still uses it may take."""


@dataclass(frozen=True, slots=True)
class _UserKey:
    """Identifies a user without containing the token."""

    mode: str
    user: str
    groups: tuple[str, ...]
    token: str


class UserClients:
    def __init__(
        self,
        own: Client,
        *,
        most: int = MAX_CLIENTS,
        close_delay: float = CLOSE_DELAY,
        observe: RequestObserver = ignore_attempt,
    ) -> None:
        """`own` is the client of the process."""
        self._own = own
        self._most = most
        self._close_delay = close_delay
        self._observe = observe
        self._clients: OrderedDict[_UserKey, tuple[Client, contextlib.AsyncExitStack]] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"UserClients({len(self._clients)} of {self._most})"

    def __len__(self) -> int:
        return len(self._clients)

    async def client(self, viewer: Viewer) -> Client:
        if viewer.mode == "local":
            return self._own.with_field_manager(FIELD_MANAGER)
        key = _UserKey(viewer.mode, viewer.user, viewer.groups, session_cookie.fingerprint(viewer.token))
        if key not in self._clients:
            stack = contextlib.AsyncExitStack()
            connection = api_client.connect(
                acting_as(self._own.config, viewer), observe=self._observe, field_manager=FIELD_MANAGER
            )
            self._clients[key] = await stack.enter_async_context(connection), stack
        self._clients.move_to_end(key)
        while len(self._clients) > self._most:
            _, (_, evicted) = self._clients.popitem(last=False)
            self._close_later(evicted)
        return self._clients[key][0]

    async def close(self) -> None:
        stacks = [stack for _, stack in self._clients.values()]
        self._clients.clear()
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
        await asyncio.gather(*(stack.aclose() for stack in stacks))

    def _close_later(self, stack: contextlib.AsyncExitStack) -> None:
        async def close() -> None:
            try:
                await asyncio.sleep(self._close_delay)
            finally:
                await stack.aclose()

        task = asyncio.create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def acting_as(config: Config, viewer: Viewer) -> Config:
    """The configuration of a client that is the viewer."""
    if viewer.mode in ("bearer", "token"):
        if not viewer.token:
            raise ValueError(f"the viewer {viewer.user!r} of mode {viewer.mode} has no token")
        return token_review.as_token(config, viewer.token)
    if viewer.mode == "headers":
        if not viewer.user or viewer.user.startswith("system:"):
            raise ValueError(f"the page does not impersonate {viewer.user!r}")
        groups = tuple(group for group in viewer.groups if not group.startswith("system:"))
        headers = {"Impersonate-User": (viewer.user,)}
        return replace(config, impersonate={**headers, "Impersonate-Group": groups} if groups else headers)
    return config
