"""Any body of kube-scheduler is a request, or Malformed with one sentence."""

import pytest

from croupier.extender import protocol
from croupier.extender.protocol import Malformed
from tests.fuzz import inputs

POD = {
    "metadata": {"name": "p", "namespace": "team", "uid": "u-1", "labels": None},
    "spec": {"containers": [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
}
FILTER = {"Pod": POD, "NodeNames": ["a", "b"], "Nodes": None}
BIND = {"PodName": "p", "PodNamespace": "team", "PodUID": "u-1", "Node": "a"}


@pytest.mark.parametrize("read", [protocol.arguments, protocol.binding])
def test_a_body_is_read_or_malformed(fuzz, read):
    def check(body: bytes) -> None:
        try:
            args = read(body)
        except Malformed as refusal:
            inputs.assert_is_sentence(str(refusal))
        else:
            assert type(args).__name__ in ("ExtenderArgs", "ExtenderBindingArgs")

    fuzz(inputs.json_bodies(FILTER, BIND), check)
