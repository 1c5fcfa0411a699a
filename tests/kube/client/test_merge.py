"""A merge keeps every field that the typed change does not contain."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.kube.client import codec, merge
from tests.kube.builders import Container, Pod, Port, Spec, raw_pod

BY_NAME = {Container: ("name",)}


def read(raw: dict[str, Any]) -> Pod:
    return codec.convert(Pod, raw)


def with_spec(raw: dict[str, Any], **changes: Any) -> Pod:
    before = read(raw)
    return msgspec.structs.replace(before, spec=msgspec.structs.replace(before.spec, **changes))


def test_a_nested_change_keeps_unknown_fields():
    raw = raw_pod()

    written = merge.typed(raw, with_spec(raw, node_name="n1"))

    assert written == {**raw, "spec": {**raw["spec"], "nodeName": "n1"}}
    assert "nodeName" not in raw["spec"], "the object as read must not be edited"


def test_unknown_fields_of_a_list_item_survive_when_its_key_is_named():
    raw = raw_pod()
    newer = Container(name="main", image="app:2", ports=[Port(container_port=80)])

    written = merge.typed(raw, with_spec(raw, containers=(Container(name="side"), newer)), keys=BY_NAME)

    side, main = written["spec"]["containers"]
    assert side == {"name": "side"}
    assert main == {**raw["spec"]["containers"][0], "image": "app:2"}


def test_map_keys_of_the_schema_are_used():
    raw = raw_pod()
    named = Container(name="main", image="app:1", ports=[Port(container_port=80, name="http")])

    written = merge.typed(raw, with_spec(raw, containers=(named,)), keys=BY_NAME)

    assert written["spec"]["containers"][0]["ports"] == [
        {"containerPort": 80, "protocol": "TCP", "name": "http"}
    ]


def test_without_a_key_equal_items_match_at_any_position():
    raw = raw_pod()
    same = read(raw).spec.containers[0]

    written = merge.typed(raw, with_spec(raw, containers=(Container(name="first"), same)))

    assert written["spec"]["containers"][1] == raw["spec"]["containers"][0]


EMPTIED = {
    "None leaves the field out": ({"nodeName": "n1"}, {"node_name": None}, "nodeName"),
    "a default leaves the field out": ({"nodeSelector": {"a": "b"}}, {"node_selector": {}}, "nodeSelector"),
    "an emptied list leaves the field out": ({}, {"containers": ()}, "containers"),
}


@pytest.mark.parametrize(("had", "change", "gone"), EMPTIED.values(), ids=EMPTIED)
def test_emptied_fields_are_removed(had, change, gone):
    raw = raw_pod(**had)

    written = merge.typed(raw, with_spec(raw, **change))

    assert gone not in written["spec"]
    assert written["spec"]["hostNetwork"] is True


def test_a_null_from_go_is_read_as_empty_and_can_be_filled():
    raw = raw_pod(containers=None, nodeSelector=None)

    written = merge.typed(raw, with_spec(raw, containers=(Container(name="new"),)))

    assert written["spec"]["containers"] == [{"name": "new"}]
    assert written["spec"]["nodeSelector"] is None


names = st.text("ab", min_size=1, max_size=2)
unknown = st.dictionaries(
    st.sampled_from(["x", "y"]), st.integers() | st.none() | st.lists(st.integers()), max_size=2
)
ports = st.lists(
    st.builds(Port, container_port=st.integers(1, 9), name=names),
    max_size=3,
    unique_by=lambda p: p.container_port,
)
containers = st.lists(
    st.builds(Container, name=names, image=names, ports=ports), max_size=3, unique_by=lambda c: c.name
).map(tuple)
specs = st.builds(
    Spec, node_name=st.none() | names, containers=containers, node_selector=st.dictionaries(names, names)
)


def strangers(draw: Any, value: Any) -> Any:
    """The same JSON with unknown fields added to every object that has known ones."""
    if isinstance(value, list):
        return [strangers(draw, item) for item in value]
    if not isinstance(value, dict):
        return value
    if any(isinstance(item, str) for item in value.values()) and "name" not in value and "image" not in value:
        return value  # a map of texts, whose every key is known
    return {**{key: strangers(draw, item) for key, item in value.items()}, **draw(unknown)}


@st.composite
def raws(draw: Any) -> dict[str, Any]:
    spec = strangers(draw, msgspec.to_builtins(draw(specs)))
    return {"metadata": {"name": "web", **draw(unknown)}, "spec": spec, **draw(unknown)}


@given(raws())
def test_an_unchanged_object_is_written_exactly_as_it_was_read(raw):
    assert merge.typed(raw, read(raw), keys=BY_NAME) == raw


@given(raws(), specs)
def test_decoding_the_result_gives_the_change(raw, spec):
    new = msgspec.structs.replace(read(raw), spec=spec)

    assert read(merge.typed(raw, new, keys=BY_NAME)) == new


@given(raws(), specs)
def test_unknown_fields_stay_on_remaining_objects(raw, spec):
    new = msgspec.structs.replace(read(raw), spec=spec)

    written = merge.typed(raw, new, keys=BY_NAME)

    assert _strange(written) == _strange(raw)
    assert _strange(written["spec"]) == _strange(raw["spec"])
    before = {item["name"]: item for item in raw["spec"].get("containers", [])}
    for item in written["spec"].get("containers", []):
        assert _strange(item) == _strange(before.get(item["name"], {}))


def _strange(value: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key in ("x", "y")}
