"""Whose token it is, asked of the API server with the token itself: this needs no right of the page.

The connection uses none of the page's own credentials, so an invalid token cannot act as the page's account.
"""

import asyncio
import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any, Final

from croupier.api import kinds
from croupier.kube.client import api_client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.config import Config, Token
from croupier.kube.client.errors import Forbidden, Unauthorized
from croupier.kube.client.retry import RetryOptions
from croupier.kube.controller.rate_limit import RateLimit, TokenBucket
from croupier.ui import session_cookie
from croupier.ui.viewer import Mode, Unauthenticated, Viewer

VALID_SECONDS: Final = 30.0
INVALID_SECONDS: Final = 5.0
MAX_REVIEWS: Final = 4096
MAX_TOKEN: Final = 16 * 1024
REVIEW_RATE: Final = RateLimit(20, 100)
"""Reviews of unknown tokens for all users together: guessing must not load the API server."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")
_ANONYMOUS: Final = ("", "system:anonymous")


@dataclass(frozen=True, slots=True)
class ReviewedUser:
    user: str
    groups: tuple[str, ...] = ()


class TokenReviewer:
    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._known: OrderedDict[str, tuple[ReviewedUser | None, float]] = OrderedDict()
        self._running: dict[str, asyncio.Task[ReviewedUser | None]] = {}
        self._bucket = TokenBucket(REVIEW_RATE)

    async def viewer(self, token: str, mode: Mode, expires: float | None = None) -> Viewer:
        """The user of the token. Raises Unauthenticated, or KubeError if the API server does not answer."""
        if len(token) > MAX_TOKEN or not _TOKEN.fullmatch(token):
            raise Unauthenticated("the token is not a bearer token; copy the whole token without spaces")
        ends = [end for end in (expires, session_cookie.expiry_of(token)) if end is not None]
        if ends and min(ends) <= self._clock.now().timestamp():
            raise Unauthenticated("the session has ended because its token expired; sign in again")
        found = await self._reviewed(token)
        if found is None:
            raise Unauthenticated("the API server does not accept the token; sign in with a valid one")
        return Viewer(found.user, found.groups, mode, token, min(ends, default=None))

    async def _reviewed(self, token: str) -> ReviewedUser | None:
        key = session_cookie.fingerprint(token)
        known = self._known.get(key)
        if known is not None:
            found, at = known
            if self._clock.monotonic() - at < (VALID_SECONDS if found else INVALID_SECONDS):
                return found
        task = self._running.get(key)
        if task is None:
            if not self._bucket.allows(self._clock.monotonic()):
                raise Unauthenticated("too many sign-ins at the moment; try again in a few seconds")
            task = self._running[key] = asyncio.create_task(self._review(key, token))
            task.add_done_callback(lambda done: self._forget(key, done))
        return await asyncio.shield(task)

    def _forget(self, key: str, task: asyncio.Task[Any]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # all who waited may have left; an error that is not read is logged

    async def _review(self, key: str, token: str) -> ReviewedUser | None:
        at = self._clock.monotonic()
        try:
            async with api_client.connect(as_token(self._config, token), retry=RetryOptions(tries=2)) as api:
                review = await api.create(kinds.SELF_SUBJECT_REVIEWS, {})
            found = _user(review)
        except (Unauthorized, Forbidden):
            found = None
        self._known[key] = found, at
        self._known.move_to_end(key)
        while len(self._known) > MAX_REVIEWS:
            self._known.popitem(last=False)
        return found


def as_token(config: Config, token: str) -> Config:
    """The same server as the owner of the token, without anything that identifies the page."""
    return replace(
        config, auth=Token(token), certificate=None, key=None, impersonate={}, source="the session"
    )


def _user(review: dict[str, Any]) -> ReviewedUser | None:
    info = (review.get("status") or {}).get("userInfo") or {}
    name = str(info.get("username") or "")
    return None if name in _ANONYMOUS else ReviewedUser(name, tuple(info.get("groups") or ()))
