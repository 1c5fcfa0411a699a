"""Errors of the API server and of the connection to it.

The API server explains a failure in a Status object. Its message becomes the
message of the exception, together with the request.
"""

from typing import Any

import msgspec


class KubeError(Exception):
    """Base class of all errors of this package."""


class ConfigError(KubeError):
    """The kubeconfig or service account is unusable; the message names the file and the remedy."""


class Unreachable(KubeError):
    """No response: connection refused, closed or timed out. The request may or may not have been executed."""


class UnusableCluster(KubeError):
    """A command cannot work with this cluster; the message says what is missing, where, and what to do."""


class Undecodable(KubeError):
    """An object does not match its type; the message names the object and the reason."""


class ApiError(KubeError):
    """The API server answered with an error."""

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
        explanation = message or reason or "no reason given"
        super().__init__(f"{explanation} ({status}{f' to {request}' if request else ''})")

    @property
    def causes(self) -> list[dict[str, Any]]:
        """The API server's objections by field."""
        return self.details.get("causes") or []


class BadRequest(ApiError):
    """400"""


class Unauthorized(ApiError):
    """401: not authenticated."""


class Forbidden(ApiError):
    """403: refused by RBAC, quota or admission."""


class NotFound(ApiError):
    """404"""


class MethodNotAllowed(ApiError):
    """405"""


class Conflict(ApiError):
    """409: the object changed since it was read; read it and decide again."""


class AlreadyExists(Conflict):
    """409 on create."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again instead of retrying."""


class TooLarge(ApiError):
    """413"""


class UnsupportedMediaType(ApiError):
    """415: for example a strategic merge patch on a custom resource."""


class Invalid(ApiError):
    """422: the object violates its schema or a validation rule."""


class TooManyRequests(ApiError):
    """429: refused before it was executed; always safe to retry later."""


class ServerError(ApiError):
    """5xx: the request may or may not have been executed."""


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
    """The API server's description of a failure."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: dict[str, Any] | None = None


def from_response(status: int, body: bytes, *, retry_after: str | None = None, request: str = "") -> ApiError:
    """The error for an HTTP response; a body that is not a Status (such as a proxy's page) is truncated."""
    try:
        explanation = msgspec.json.decode(body, type=Status)
    except msgspec.MsgspecError:
        explanation = Status(message=body[:200].decode(errors="replace").strip())
    return from_status(explanation, status=status, retry_after=retry_after, request=request)


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
    """Retry-After in seconds. The API server sends no dates; for a proxy's date the backoff applies."""
    if header is not None and header.strip().isdigit():
        return float(header)
    if isinstance(field, int) and field > 0:
        return float(field)
    return None
