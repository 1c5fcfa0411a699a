"""Any AdmissionReview gets an answer, under its UID if it has one."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.admission import review
from croupier.admission.review import AdmissionRequest, AdmissionVerdict, UnreadableReview
from croupier.core.jsonpatch import Operation

POD = {"metadata": {"name": "p", "fieldOfTomorrow": {"kept": [1, None]}}, "spec": {"containers": []}}
PODS = {"group": "", "version": "v1", "resource": "pods"}


def body(**request: object) -> bytes:
    asked = {"uid": "u-1", "operation": "CREATE", "resource": PODS, "namespace": "team", "object": POD}
    return enveloped(asked | request)


def enveloped(request: object, **other: object) -> bytes:
    shell = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(shell | other).encode()


def said(answer: bytes) -> dict[str, Any]:
    decoded = json.loads(answer)
    assert (decoded["apiVersion"], decoded["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response: dict[str, Any] = decoded["response"]
    return response


def test_the_pod_is_decoded_unchanged():
    asked = review.read(body(dryRun=True))

    assert isinstance(asked, AdmissionRequest)
    assert (asked.uid, asked.namespace, asked.dry_run) == ("u-1", "team", True)
    assert asked.object == POD
    assert asked.creates_a_pod


NOT_A_POD = {
    "an update": {"operation": "UPDATE"},
    "a deletion, which has no object": {"operation": "DELETE", "object": None},
    "another kind": {"resource": {**PODS, "resource": "services"}},
    "another group": {"resource": {**PODS, "group": "metrics.k8s.io"}},
    "a subresource": {"subResource": "ephemeralcontainers"},
}


@pytest.mark.parametrize("request_", NOT_A_POD.values(), ids=NOT_A_POD)
def test_other_requests_are_not_a_pod_creation(request_):
    asked = review.read(body(**request_))

    assert isinstance(asked, AdmissionRequest)
    assert not asked.creates_a_pod


UNDER_ITS_UID = {
    "a pod that is a list": body(object=[1]),
    "an operation that is a number": body(operation=7),
    "a dry run of text": body(dryRun="yes"),
}
WITHOUT_A_UID = {
    "nothing": b"",
    "invalid JSON": b"{",
    "invalid UTF-8": b'{"apiVersion": "\xff"}',
    "a list": b"[]",
    "no request": json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).encode(),
    "a request of null": enveloped(None),
    "an empty uid": body(uid=""),
    "a uid that is a number": body(uid=7),
    "an older version": enveloped({"uid": "u-1"}, apiVersion="admission.k8s.io/v1beta1"),
    "a version that is a number": enveloped({"uid": "u-1"}, apiVersion=1),
    "another kind": enveloped({"uid": "u-1"}, kind="TokenReview"),
    "deeply nested lists": b"[" * 100_000,
    "deeply nested objects in the request": enveloped({"uid": "u-1"})[:-2]
    + b', "object": '
    + b'{"a":' * 100_000,
}


@pytest.mark.parametrize("sent", UNDER_ITS_UID.values(), ids=UNDER_ITS_UID)
def test_an_invalid_review_is_refused_under_its_uid(sent):
    unreadable = review.read(sent)

    assert isinstance(unreadable, UnreadableReview)
    assert unreadable.status == 200
    response = said(unreadable.body)
    assert (response["uid"], response["allowed"]) == ("u-1", False)
    assert response["status"]["code"] == 400
    assert "the AdmissionReview is invalid" in response["status"]["message"]


@pytest.mark.parametrize("sent", WITHOUT_A_UID.values(), ids=WITHOUT_A_UID)
def test_a_review_without_a_uid_is_a_bad_request(sent):
    unreadable = review.read(sent)

    assert isinstance(unreadable, UnreadableReview)
    assert unreadable.status == 400
    assert unreadable.body.endswith(b"\n")
    assert not unreadable.is_review


def test_an_unknown_version_is_named():
    unreadable = review.read(enveloped({"uid": "u-1"}, apiVersion="admission.k8s.io/v2"))

    assert isinstance(unreadable, UnreadableReview)
    assert unreadable.sentence == (
        "only AdmissionReview of admission.k8s.io/v1 is supported, "
        "but this is 'AdmissionReview' of 'admission.k8s.io/v2'"
    )


@given(
    st.binary()
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(json.dumps).map(str.encode)
)
def test_any_bytes_can_be_read(sent):
    assert isinstance(review.read(sent), UnreadableReview)


def test_a_change_is_sent_as_a_patch():
    operations = (
        Operation("remove", "/a"),
        Operation("add", "/b~1c", None),
        Operation("replace", "/d", {"e": "1"}),
    )
    response = said(review.answer("u-1", AdmissionVerdict(operations=operations, warnings=("look", "there"))))

    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "remove", "path": "/a"},
        {"op": "add", "path": "/b~1c", "value": None},
        {"op": "replace", "path": "/d", "value": {"e": "1"}},
    ]
    assert response["warnings"] == ["look", "there"]


def test_an_unchanged_pod_has_no_patch():
    assert said(review.answer("u-1", AdmissionVerdict())) == {"uid": "u-1", "allowed": True}


def test_a_refusal_has_a_message_and_no_patch():
    refused = AdmissionVerdict(allowed=False, sentence="because", operations=(Operation("remove", "/a"),))

    assert said(review.answer("u-1", refused)) == {
        "uid": "u-1",
        "allowed": False,
        "status": {"status": "Failure", "code": 403, "reason": "Forbidden", "message": "because"},
    }
