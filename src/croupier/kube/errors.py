"""What can go wrong between us and an API server, as types a caller can tell apart.

The API server explains itself in a Status object; its sentence is the one a
person gets to read, with the request it answered.
"""

from typing import Any

import msgspec


class KubeError(Exception):
    """Anything this room raises on purpose."""


class ConfigError(KubeError):
    """The kubeconfig or the service account cannot be used; says which file and what to do."""


class Unreachable(KubeError):
    """No answer came: refused, cut or timed out. The request may or may not have been carried out."""


class Undecodable(KubeError):
    """An object that does not fit the type it was asked for as; says which and why."""


class ApiError(KubeError):
    """The API server answered, and the answer was no."""

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        *,
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
        request: str = "",
    ) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.retry_after = retry_after
        self.request = request
        said = message or reason or "no reason given"
        super().__init__(f"{said} ({status}{f' to {request}' if request else ''})")

    @property
    def causes(self) -> list[dict[str, Any]]:
        """Field by field what the API server objects to."""
        return self.details.get("causes") or []


class BadRequest(ApiError):
    """400"""


class Unauthorized(ApiError):
    """401: the API server does not know who we are."""


class Forbidden(ApiError):
    """403: it knows, and RBAC, quota or admission says no."""


class NotFound(ApiError):
    """404"""


class MethodNotAllowed(ApiError):
    """405"""


class Conflict(ApiError):
    """409: the object changed since it was read; read it again and decide again."""


class AlreadyExists(Conflict):
    """409 on create."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again, never retry it."""


class TooLarge(ApiError):
    """413"""


class UnsupportedMediaType(ApiError):
    """415: for example a strategic merge patch on a custom resource."""


class Invalid(ApiError):
    """422: the object breaks the schema or a rule."""


class TooManyRequests(ApiError):
    """429: refused before it was carried out; always safe to repeat later."""


class ServerError(ApiError):
    """5xx: it may or may not have been carried out."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    415: UnsupportedMediaType,
    422: Invalid,
    429: TooManyRequests,
}


class Status(msgspec.Struct, frozen=True):
    """The API server's own account of a failure."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: dict[str, Any] | None = None


def from_answer(status: int, body: bytes, *, retry_after: str | None = None, request: str = "") -> ApiError:
    """The error for an HTTP answer; a body that is no Status (a proxy's page) is quoted in short."""
    try:
        said = msgspec.json.decode(body, type=Status)
    except msgspec.MsgspecError:
        said = Status(message=body[:200].decode(errors="replace").strip())
    return from_status(said, status=status, retry_after=retry_after, request=request)


def from_status(
    said: Status, *, status: int | None = None, retry_after: str | None = None, request: str = ""
) -> ApiError:
    code = status or said.code or 500
    kind = _BY_STATUS.get(code, ServerError if code >= 500 else ApiError)
    if code == 409 and said.reason == "AlreadyExists":
        kind = AlreadyExists
    details = said.details or {}
    return kind(
        code,
        said.reason or "",
        said.message or "",
        details=details,
        retry_after=_seconds(retry_after, details.get("retryAfterSeconds")),
        request=request,
    )


def _seconds(header: str | None, field: object) -> float | None:
    """Retry-After in seconds. (The API server sends no dates; a proxy's date is left to our back-off.)"""
    if header is not None and header.strip().isdigit():
        return float(header)
    if isinstance(field, int) and field > 0:
        return float(field)
    return None
