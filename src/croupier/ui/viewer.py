"""Who uses the page. The concrete ways to find out are in session.py."""

from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from starlette.requests import Request

Mode: TypeAlias = Literal["local", "bearer", "token", "headers"]


@dataclass(frozen=True, slots=True)
class Viewer:
    user: str
    groups: tuple[str, ...] = ()
    mode: Mode = "local"
    token: str = field(default="", repr=False)
    """The user's own credential in modes bearer and token."""
    expires: float | None = None
    """Seconds since 1970; None if unknown."""


class Unauthenticated(Exception):
    """The request has no valid session; the text is the sentence for the user. Becomes 401."""


class Authenticator(Protocol):
    @property
    def mode(self) -> Mode: ...

    async def viewer(self, request: Request) -> Viewer:
        """The user of the request. Raises Unauthenticated, or KubeError if the API server does not answer."""
        ...
