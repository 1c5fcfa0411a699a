"""The wire format matches the Go types of kube-scheduler, and invalid input is handled."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.extender import protocol
from croupier.extender.protocol import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    Malformed,
)

METADATA = {"name": "p", "namespace": "team", "uid": "u-1", "resourceVersion": "7", "labels": None}
POD = {
    "metadata": METADATA,
    "spec": {"containers": [{"name": "c", "resources": {"limits": {"gpu.mps.io/ledger": "1"}}}]},
    "status": {"phase": "Pending", "conditions": None},
}


def test_arguments_as_go_writes_them():
    args = protocol.arguments(json.dumps({"Pod": POD, "Nodes": None, "NodeNames": ["a", "b"]}).encode())

    assert args.pod.metadata.key == "team/p"
    assert args.node_names == ("a", "b")


def test_whole_nodes_are_refused_with_a_solution():
    body = json.dumps({"Pod": POD, "Nodes": {"items": [{"metadata": {"name": "a"}}]}, "NodeNames": None})

    with pytest.raises(Malformed, match="nodeCacheCapable: true"):
        protocol.arguments(body.encode())


def test_a_binding_as_go_writes_it():
    body = b'{"PodName":"p","PodNamespace":"team","PodUID":"u-1","Node":"a"}'

    args = protocol.binding(body)

    assert (args.key, args.pod_uid, args.node) == ("team/p", "u-1", "a")


def test_answers_as_go_reads_them():
    filtered = ExtenderFilterResult(("a",), {"b": "full"}, {"c": "none"}, "")

    assert json.loads(protocol.encode(filtered)) == {
        "NodeNames": ["a"],
        "FailedNodes": {"b": "full"},
        "FailedAndUnresolvableNodes": {"c": "none"},
        "Error": "",
    }
    assert json.loads(protocol.encode(ExtenderBindingResult("no"))) == {"Error": "no"}


GARBAGE = {
    "nothing": b"",
    "no JSON": b"{",
    "no UTF-8": b'{"PodName":"\xff"}',
    "another type": b"[1, 2]",
    "null": b"null",
    "wrong fields": b'{"Pod": 5, "PodName": 5}',
    "a path": b'{"PodName":"../../x","PodNamespace":"team","PodUID":"u","Node":"a"}',
    "nameless": b'{"Pod":{"metadata":{}},"NodeNames":["a"],"PodName":"","PodNamespace":"","PodUID":""}',
    "deep": b"[" * 100_000,
    "deep object": b'{"Pod":' * 50_000,
    "NaN": b'{"Pod": NaN}',
}


@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE)
def test_invalid_input_raises_only_malformed(body):
    for read in (protocol.arguments, protocol.binding):
        with pytest.raises(Malformed) as refusal:
            read(body)
        assert len(str(refusal.value)) < 300


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(
                    ["Pod", "metadata", "spec", "containers", "NodeNames", "resources", "PodName", "x"]
                ),
                x,
            )
        ),
    )
)
def test_any_json_is_read_or_malformed(value):
    for read in (protocol.arguments, protocol.binding):
        answer: object
        try:
            answer = read(json.dumps(value).encode())
        except Malformed as refusal:
            answer = str(refusal)

        assert isinstance(answer, ExtenderArgs | ExtenderBindingArgs) or 0 < len(str(answer)) < 300
