"""Objects and lists from JSON: typed, tolerant of nulls, and one invalid object never hides the others."""

import msgspec
import pytest

from croupier.kube.client import codec, errors, listing
from croupier.kube.client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Gone,
    Invalid,
    ServerError,
    Undecodable,
)
from croupier.kube.client.resource import Resource
from croupier.kube.client.retry import RetrySafety, may_retry
from croupier.kube.client.transport import NeverSent
from tests.kube.builders import PODS, Pod, config_map, pod, raw_pod


def page(*items: object, token: str = "") -> bytes:
    return msgspec.json.encode(
        {"metadata": {"resourceVersion": "9", "continue": token}, "items": list(items)}
    )


def test_a_page_is_typed_and_has_its_version_and_continue_token():
    read = listing.page(Pod, page(raw_pod("a"), raw_pod("b"), token="more"))

    assert [found.metadata.name for found in read.items] == ["a", "b"]
    assert (read.resource_version, read.next) == ("9", "more")


def test_an_empty_list_from_go_is_null():
    assert listing.page(Pod, b'{"metadata":{"resourceVersion":"9"},"items":null}').items == []


def test_nulls_in_an_item_count_as_absent():
    read = listing.page(Pod, page(raw_pod("a", containers=None), raw_pod("b")))

    assert [len(found.spec.containers) for found in read.items] == [0, 1]
    assert read.skipped == ()


def test_an_invalid_item_is_skipped_and_named():
    read = listing.page(Pod, page(raw_pod("a"), raw_pod("bad", nodeName=7), raw_pod("c")))

    assert [found.metadata.name for found in read.items] == ["a", "c"]
    (reason,) = read.skipped
    assert "shop/bad" in reason
    assert "nodeName" in reason


@pytest.mark.parametrize("body", [b"<html>", b'{"kind":"Status"}'])
def test_a_body_that_is_not_a_list_is_refused(body):
    with pytest.raises(Undecodable):
        listing.page(Pod, body)


def test_kind_and_api_version_are_added_to_objects_but_not_to_bindings():
    assert msgspec.json.decode(codec.encode(PODS, pod()))["kind"] == "Pod"
    assert msgspec.json.decode(codec.encode(PODS, config_map(), subresource="status"))["apiVersion"] == "v1"
    assert "kind" not in msgspec.json.decode(codec.encode(PODS, {"target": {}}, subresource="binding"))


PATHS = {
    "core, namespaced": (PODS, ("shop", "web", "status"), "/api/v1/namespaces/shop/pods/web/status"),
    "core, all namespaces": (PODS, (), "/api/v1/pods"),
    "group, cluster-scoped": (
        Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False, dict),
        (None, "system:node/a", None),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node%2Fa",
    ),
}


@pytest.mark.parametrize(("resource", "where", "path"), PATHS.values(), ids=PATHS)
def test_paths(resource, where, path):
    assert resource.path(*where) == path


def test_a_missing_or_superfluous_namespace_is_an_error():
    with pytest.raises(ValueError, match="is namespaced; pass its namespace"):
        PODS.path(None, "web")
    with pytest.raises(ValueError, match="is cluster-scoped"):
        Resource("", "v1", "nodes", "Node", False, dict).path("shop", "n1")


ANSWERS: dict[str, tuple[int, bytes, type[ApiError]]] = {
    "conflict": (409, b'{"reason":"Conflict"}', Conflict),
    "already there": (409, b'{"reason":"AlreadyExists"}', AlreadyExists),
    "gone": (410, b'{"reason":"Expired"}', Gone),
    "invalid": (422, b"{}", Invalid),
    "a proxy's page": (502, b"<html>bad gateway", ServerError),
    "an unknown code": (418, b"", ApiError),
}


@pytest.mark.parametrize(("status", "body", "kind"), ANSWERS.values(), ids=ANSWERS)
def test_responses_become_distinct_errors(status, body, kind):
    assert type(errors.from_response(status, body)) is kind


def test_an_error_has_the_message_and_retry_after_of_the_api_server():
    body = (
        b'{"message":"too busy","reason":"TooManyRequests","details":{"retryAfterSeconds":3,"causes":null}}'
    )

    error = errors.from_response(429, body, request="GET /api")

    assert (str(error), error.retry_after, error.causes) == ("too busy (429 to GET /api)", 3.0, [])
    assert errors.from_response(429, body, retry_after="7").retry_after == 7.0


BUSY, CUT, UNSENT, BROKEN, NO = (
    errors.TooManyRequests(429),
    errors.Unreachable("cut"),
    NeverSent("refused"),
    ServerError(500),
    errors.Forbidden(403),
)
REPEATS = {
    RetrySafety.IDEMPOTENT: {BUSY, CUT, UNSENT, BROKEN},
    RetrySafety.NOT_IDEMPOTENT: {BUSY, UNSENT},
    RetrySafety.NEVER: set(),
}


@pytest.mark.parametrize("repeat", RetrySafety)
def test_which_requests_are_retried_after_which_error(repeat):
    assert {error for error in (BUSY, CUT, UNSENT, BROKEN, NO) if may_retry(error, repeat)} == REPEATS[repeat]
