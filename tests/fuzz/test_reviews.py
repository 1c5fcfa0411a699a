"""Any body is an AdmissionReview, or gets an answer that says why not."""

import json

from croupier.admission import review
from croupier.admission.review import UnreadableReview
from tests.fuzz import inputs

POD = {
    "metadata": {"name": "p", "annotations": {"gpu.mps.io/ratio": "50"}},
    "spec": {"containers": [{"name": "main"}]},
}
REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {
        "uid": "u-1",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "team",
        "userInfo": {"username": "jane", "groups": ["dev"]},
        "dryRun": False,
        "object": POD,
    },
}


def test_a_body_is_read_or_answered(fuzz):
    def check(body: bytes) -> None:
        request = review.read(body)

        if isinstance(request, UnreadableReview):
            inputs.assert_is_sentence(request.sentence)
            assert 400 <= request.status < 500 or request.is_review
            assert len(request.body) < 4_000 + len(body)
            assert not request.is_review or json.loads(request.body)["kind"] == "AdmissionReview"
        else:
            assert request.uid

    fuzz(inputs.json_bodies(REVIEW), check)
