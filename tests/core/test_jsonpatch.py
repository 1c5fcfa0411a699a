"""JSON Patch as in RFC 6902, with the relevant examples of its appendix."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core import jsonpatch
from croupier.core.jsonpatch import BadPatchError, Operation

DONE = {
    "A.1 an object member": ({"foo": "bar"}, Operation("add", "/baz", "qux"), {"baz": "qux", "foo": "bar"}),
    "A.2 an array element": (
        {"foo": ["bar", "baz"]},
        Operation("add", "/foo/1", "qux"),
        {"foo": ["bar", "qux", "baz"]},
    ),
    "A.3 a member is removed": ({"baz": "qux", "foo": "bar"}, Operation("remove", "/baz"), {"foo": "bar"}),
    "A.4 an element is removed": (
        {"foo": ["bar", "qux", "baz"]},
        Operation("remove", "/foo/1"),
        {"foo": ["bar", "baz"]},
    ),
    "A.5 a value is replaced": (
        {"baz": "qux", "foo": "bar"},
        Operation("replace", "/baz", "boo"),
        {"baz": "boo", "foo": "bar"},
    ),
    "A.10 a nested object": (
        {"foo": "bar"},
        Operation("add", "/child", {"grandchild": {}}),
        {"foo": "bar", "child": {"grandchild": {}}},
    ),
    "A.16 an array value at the end": (
        {"foo": ["bar"]},
        Operation("add", "/foo/-", ["abc", "def"]),
        {"foo": ["bar", ["abc", "def"]]},
    ),
    "add replaces an existing value": ({"a": None}, Operation("add", "/a", {}), {"a": {}}),
    "a slash and a tilde in a name": (
        {"nvidia.com/gpu": 1, "a~b": {}},
        Operation("add", "/a~0b/nvidia.com~1gpu", 2),
        {"nvidia.com/gpu": 1, "a~b": {"nvidia.com/gpu": 2}},
    ),
    "a name that only looks escaped": ({"~1": 1}, Operation("replace", "/~01", 2), {"~1": 2}),
    "an empty name": ({}, Operation("add", "/", 1), {"": 1}),
    "the document itself": ({"a": 1}, Operation("replace", "", [1]), [1]),
    "deep in an array": (
        {"c": [{"n": 1}, {"n": 2}]},
        Operation("replace", "/c/1/n", 3),
        {"c": [{"n": 1}, {"n": 3}]},
    ),
}


@pytest.mark.parametrize(("document", "operation", "after"), DONE.values(), ids=DONE)
def test_an_operation_does_what_the_standard_says(document, operation, after):
    before = copy.deepcopy(document)

    assert jsonpatch.apply(document, [operation]) == after
    assert document == before


REFUSED = {
    "A.12 into a missing object": ({"foo": "bar"}, Operation("add", "/baz/bat", "qux"), "there is no 'baz'"),
    "remove a missing value": ({}, Operation("remove", "/a"), "there is no 'a'"),
    "replace a missing value": ({}, Operation("replace", "/a", 1), "there is no 'a'"),
    "beyond the end": ({"a": [1]}, Operation("add", "/a/2", 1), "only 1 elements"),
    "the end itself, replaced": ({"a": [1]}, Operation("replace", "/a/-", 1), "not an array index"),
    "one past the end, removed": ({"a": [1]}, Operation("remove", "/a/1"), "only 1 elements"),
    "an index with a zero in front": ({"a": [1, 2]}, Operation("remove", "/a/01"), "not an array index"),
    "an index of another script": ({"a": [1, 2]}, Operation("remove", "/a/１"), "not an array index"),
    "a negative index": ({"a": [1, 2]}, Operation("remove", "/a/-1"), "not an array index"),
    "into text": ({"a": "b"}, Operation("add", "/a/c", 1), "has no members"),
    "into null": ({"a": None}, Operation("add", "/a/c", 1), "has no members"),
    "no slash in front": ({"a": 1}, Operation("remove", "a"), "must begin with a slash"),
}


@pytest.mark.parametrize(("document", "operation", "said"), REFUSED.values(), ids=REFUSED)
def test_a_patch_that_does_not_apply_is_refused(document, operation, said):
    with pytest.raises(BadPatchError, match=said):
        jsonpatch.apply(document, [operation])


def test_remove_is_sent_without_a_value():
    sent = jsonpatch.data([Operation("remove", "/a"), Operation("add", "/b", None)])

    assert sent == [{"op": "remove", "path": "/a"}, {"op": "add", "path": "/b", "value": None}]


@given(st.dictionaries(st.text(), st.integers()), st.text(), st.integers())
def test_any_name_is_reached_by_its_pointer(document, name, value):
    path = jsonpatch.pointer("in", name)

    added = jsonpatch.apply({"in": document}, [Operation("add", path, value)])

    assert added == {"in": {**document, name: value}}
    assert name not in jsonpatch.apply(added, [Operation("remove", path)])["in"]
