"""The current credential: the Authorization header and client certificate of the next request.

Tokens change at run time. A token file is read again every few seconds, because
the kubelet renews it in place. An exec plugin runs again when its credential
expires. Both are refreshed when the API server answers 401.
"""

import asyncio
import base64
from dataclasses import dataclass
from pathlib import Path

from croupier.kube.client import exec_plugin
from croupier.kube.client.clock import Clock
from croupier.kube.client.config import Anonymous, AuthMethod, Basic, Exec, Token, TokenFile
from croupier.kube.client.errors import ConfigError

TOKEN_FILE_TTL = 10.0
"""Seconds after which a token file is read again."""


@dataclass(frozen=True, slots=True)
class Credential:
    authorization: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None


class Credentials:
    """The current credential of one Auth, renewed when necessary."""

    def __init__(self, auth: AuthMethod, clock: Clock) -> None:
        self._auth = auth
        self._clock = clock
        self._lock = asyncio.Lock()
        self._current: Credential | None = None
        self._read_at = float("-inf")
        self._expires: float | None = None

    async def current(self) -> Credential:
        if self._current is not None and self._fresh():
            return self._current
        async with self._lock:
            if self._current is None or not self._fresh():
                self._current = await self._renew()
            return self._current

    def refused(self, used: Credential) -> bool:
        """The API server answered 401 to `used`; true if a new credential may help."""
        if isinstance(self._auth, Anonymous | Token | Basic):
            return False
        if self._current == used:  # otherwise another task has already renewed it
            self._current = None
        return True

    def _fresh(self) -> bool:
        now = self._clock.monotonic()
        if isinstance(self._auth, TokenFile):
            return now - self._read_at < TOKEN_FILE_TTL
        return self._expires is None or now < self._expires

    async def _renew(self) -> Credential:
        self._read_at = self._clock.monotonic()
        match self._auth:
            case Token(token):
                return Credential(f"Bearer {token}")
            case TokenFile(path):
                return Credential(f"Bearer {_read_token(path)}")
            case Basic(username, password):
                pair = base64.b64encode(f"{username}:{password}".encode()).decode()
                return Credential(f"Basic {pair}")
            case Exec() as plugin:
                return await self._run(plugin)
            case Anonymous():
                return Credential()

    async def _run(self, plugin: Exec) -> Credential:
        output = await exec_plugin.run(plugin)
        self._expires = None
        if output.expires is not None:
            left = (output.expires - self._clock.now()).total_seconds()
            self._expires = self._clock.monotonic() + left
        return Credential(
            authorization=f"Bearer {output.token}" if output.token else None,
            certificate=output.certificate,
            key=output.key,
        )


def _read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as bad:
        raise ConfigError(f"cannot read the token file {path}: {bad.strerror}") from bad
    if not token:
        raise ConfigError(f"the token file {path} is empty; check the program that writes it")
    return token
