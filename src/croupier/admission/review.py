"""AdmissionReview v1 as values: bytes in, a question or the answer to what is none; a verdict in, bytes out.

The API server sends whole objects and reads little: the uid, yes or no, a patch, warnings. What
cannot be read is answered as far as it can be: under its uid where it has one, so that the sentence
reaches whoever creates the pod, and else with a plain 400.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec import Struct

from croupier.core import jsonpatch
from croupier.core.fallbacks.fallback import Note
from croupier.core.jsonpatch import Operation

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
FORBIDDEN: Final = 403
"""What a refused pod is answered with, as admission plug-ins of the API server do."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a pod. `sentence` is why not, for a person to read."""

    allowed: bool = True
    operations: Sequence[Operation] = ()
    warnings: tuple[str, ...] = ()
    sentence: str = ""
    events: tuple[Note, ...] = ()
    """What is worth telling about the pod once it exists."""
    fallbacks: tuple[tuple[str, str], ...] = ()
    """What was asked for and what is given instead, one per rewrite."""


class GroupVersionResource(Struct, frozen=True, gc=False):
    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(Struct, frozen=True):
    """Who sent it, as the API server knows them; the rest of it does not concern us."""

    username: str = ""
    groups: tuple[str, ...] = ()


class AdmissionRequest(Struct, frozen=True, rename="camel"):
    """What the API server is about to do. `object` is the pod as sent, nothing left out."""

    uid: str
    operation: str = ""
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str | None = None
    name: str | None = None
    """Empty or absent for a pod whose name is still to be generated."""
    namespace: str | None = None
    dry_run: bool | None = None
    user_info: UserInfo = UserInfo()
    object: dict[str, Any] | None = None

    @property
    def creates_a_pod(self) -> bool:
        """Anything else came by a configuration that is not ours, and is none of our business."""
        what = self.resource
        return (
            self.operation == "CREATE"
            and what.resource == "pods"
            and not what.group
            and not self.sub_resource
            and self.object is not None
        )


@dataclass(frozen=True, slots=True)
class Unreadable:
    """No question we understand; `body` says why, to be sent with `status`."""

    status: int
    body: bytes
    sentence: str
    is_review: bool = False
    """Whether the body is an AdmissionReview, because there was a uid to answer to."""


class _Review(Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: AdmissionRequest


class _Envelope(Struct, frozen=True, rename="camel"):
    """The least of a review that can be answered."""

    class Asked(Struct, frozen=True):
        uid: Any = None

    api_version: Any = None
    kind: Any = None
    request: Asked | None = None


_review: Final = msgspec.json.Decoder(_Review)
_envelope: Final = msgspec.json.Decoder(_Envelope)
_encode: Final = msgspec.json.encode


def read(body: bytes) -> AdmissionRequest | Unreadable:
    try:
        found = _review.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as bad:
        return _unreadable(body, str(bad))
    if found.api_version != API_VERSION or found.kind != KIND:
        return _foreign(found.api_version, found.kind)
    if not found.request.uid:
        return _plain("the AdmissionReview has no request.uid, so there is nothing to answer to")
    return found.request


def answer(uid: str, verdict: Verdict) -> bytes:
    """The review that says so. A refusal carries nothing but its sentence."""
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


def _unreadable(body: bytes, why: str) -> Unreadable:
    try:
        found = _envelope.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _plain(f"the body is no AdmissionReview: {why}")
    if found.api_version != API_VERSION or found.kind != KIND:
        return _foreign(found.api_version, found.kind)
    uid = found.request.uid if found.request is not None else None
    if not isinstance(uid, str) or not uid:
        return _plain(f"the AdmissionReview cannot be read and has no request.uid to answer to: {why}")
    sentence = f"the AdmissionReview cannot be read: {why}"
    response = {"uid": uid, "allowed": False, "status": _refusal(sentence, 400, "BadRequest")}
    return Unreadable(200, _enveloped(response), sentence, is_review=True)


def _foreign(api_version: Any, kind: Any) -> Unreadable:
    """The answer would have to be in that version, which we do not know."""
    told = f"{_shown(kind)} of {_shown(api_version)}"
    return _plain(f"only {KIND} of {API_VERSION} is understood here, and this is {told}")


def _plain(sentence: str) -> Unreadable:
    return Unreadable(400, f"{sentence}\n".encode(), sentence)


def _shown(word: Any) -> str:
    return f"{word[:64]!r}" if isinstance(word, str) and word else "nothing of the kind"
