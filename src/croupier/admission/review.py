"""Decodes and encodes AdmissionReview v1.

An invalid review is answered under its UID if it has one, so that the message reaches the creator of the pod;
otherwise with a plain 400.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Struct

from croupier.core import jsonpatch
from croupier.core.fallbacks.fallback import PodEvent
from croupier.core.jsonpatch import Operation

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
FORBIDDEN: Final = 403
"""The status code of a refused pod, as in the admission plugins of the API server."""


@dataclass(frozen=True, slots=True)
class AdmissionVerdict:
    """The decision about a pod. `sentence` is the message of a refusal."""

    allowed: bool = True
    operations: Sequence[Operation] = ()
    warnings: tuple[str, ...] = ()
    sentence: str = ""
    events: tuple[PodEvent, ...] = ()
    """Events to record once the pod exists."""
    fallbacks: tuple[tuple[str, str], ...] = ()
    """Requested and replacing resource of each rewrite."""


class GroupVersionResource(Struct, frozen=True, gc=False):
    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(Struct, frozen=True):
    """The user that sent the request."""

    username: str = ""
    groups: tuple[str, ...] = ()


class AdmissionRequest(Struct, frozen=True, rename="camel"):
    """The request of an AdmissionReview. `object` is the complete pod or Reservation."""

    uid: str
    operation: str = ""
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str | None = None
    name: str | None = None
    """Empty or absent for a pod with a generated name."""
    namespace: str | None = None
    dry_run: bool | None = None
    user_info: UserInfo = UserInfo()
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None

    @property
    def writes_a_reservation(self) -> bool:
        """Other requests come from a configuration that is not ours."""
        what = self.resource
        return (
            self.operation in ("CREATE", "UPDATE")
            and (what.group, what.resource) == ("mps.nvidia.com", "reservations")
            and not self.sub_resource
        )

    @property
    def creates_a_pod(self) -> bool:
        """Other requests come from a configuration that is not ours."""
        what = self.resource
        return (
            self.operation == "CREATE"
            and what.resource == "pods"
            and not what.group
            and not self.sub_resource
            and self.object is not None
        )


@dataclass(frozen=True, slots=True)
class UnreadableReview:
    """An invalid review; `body` is the answer, to be sent with `status`."""

    status: int
    body: bytes
    sentence: str
    is_review: bool = False
    """Whether the answer is an AdmissionReview, because the request has a UID."""


class _Review(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: AdmissionRequest


class _Envelope(Struct, frozen=True, rename="camel"):
    """The minimum of a review that can be answered."""

    class RequestUID(Struct, frozen=True):
        uid: Any = None

    api_version: Any = None
    kind: Any = None
    request: RequestUID | None = None


_review: Final = msgspec.json.Decoder(_Review)
_envelope: Final = msgspec.json.Decoder(_Envelope)
_encode: Final = msgspec.json.encode


def read(body: bytes) -> AdmissionRequest | UnreadableReview:
    try:
        review = _review.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as bad:
        return _unreadable(body, str(bad))
    if review.api_version != API_VERSION or review.kind != KIND:
        return _unsupported(review.api_version, review.kind)
    if not review.request.uid:
        return _bad_request("the AdmissionReview has no request.uid")
    return review.request


def answer(uid: str, verdict: AdmissionVerdict) -> bytes:
    """The AdmissionReview with the response. A refusal has only its message."""
    response: dict[str, Any] = {"uid": uid, "allowed": verdict.allowed}
    if not verdict.allowed:
        response["status"] = _refusal(verdict.sentence, FORBIDDEN, "Forbidden")
    elif verdict.operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = b64encode(_encode(jsonpatch.data(verdict.operations))).decode()
    if verdict.warnings:
        response["warnings"] = verdict.warnings
    return _enveloped(response)


def _enveloped(response: dict[str, Any]) -> bytes:
    return _encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def _refusal(sentence: str, code: int, reason: str) -> dict[str, Any]:
    return {"status": "Failure", "code": code, "reason": reason, "message": sentence}


def _unreadable(body: bytes, why: str) -> UnreadableReview:
    try:
        envelope = _envelope.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _bad_request(f"the body is not an AdmissionReview: {why}")
    if envelope.api_version != API_VERSION or envelope.kind != KIND:
        return _unsupported(envelope.api_version, envelope.kind)
    uid = envelope.request.uid if envelope.request is not None else None
    if not isinstance(uid, str) or not uid:
        return _bad_request(f"the AdmissionReview is invalid and has no request.uid: {why}")
    sentence = f"the AdmissionReview is invalid: {why}"
    response = {"uid": uid, "allowed": False, "status": _refusal(sentence, 400, "BadRequest")}
    return UnreadableReview(200, _enveloped(response), sentence, is_review=True)


def _unsupported(api_version: Any, kind: Any) -> UnreadableReview:
    """The answer would have to be in that version, which is not supported."""
    received = f"{_quoted(kind)} of {_quoted(api_version)}"
    return _bad_request(f"only {KIND} of {API_VERSION} is supported, but this is {received}")


def _bad_request(sentence: str) -> UnreadableReview:
    return UnreadableReview(400, f"{sentence}\n".encode(), sentence)


def _quoted(word: Any) -> str:
    return f"{word[:64]!r}" if isinstance(word, str) and word else "an unknown value"
