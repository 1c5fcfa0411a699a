"""The watch protocol: bytes in chunks of any size, events out, and no line hides the next."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.kube.client import watch_protocol
from croupier.kube.client.errors import Gone, ServerError
from croupier.kube.client.watch_protocol import Bookmark, ObjectEvent, SkippedEvent, WatchDecoder, WatchError
from tests.kube.builders import Pod, pod, raw_pod


def line(kind: str, body: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": body}) + b"\n"


def bookmark(version: str) -> bytes:
    return line("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": version}})


def expired() -> bytes:
    return line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})


def test_an_event_has_a_typed_object():
    (event,) = WatchDecoder(Pod).feed(line("ADDED", raw_pod("web")))

    assert isinstance(event, ObjectEvent)
    assert (event.type, event.object.metadata.name) == ("ADDED", "web")


def test_a_bookmark_only_moves_the_version():
    assert WatchDecoder(Pod).feed(bookmark("42")) == [Bookmark("42")]


def test_a_410_in_the_stream_raises_gone():
    (event,) = WatchDecoder(Pod).feed(expired())

    assert isinstance(event, WatchError)
    assert isinstance(event.error, Gone)


def test_any_other_error_keeps_the_message_of_the_api_server():
    (event,) = WatchDecoder(Pod).feed(line("ERROR", {"code": 500, "message": "etcd is away"}))

    assert isinstance(event, WatchError)
    assert isinstance(event.error, ServerError)
    assert "etcd is away" in str(event.error)


def test_events_before_an_error_in_the_same_chunk_are_not_lost():
    kinds = [type(event) for event in WatchDecoder(Pod).feed(line("ADDED", raw_pod()) + expired())]

    assert kinds == [ObjectEvent, WatchError]


def test_null_for_a_list_is_an_empty_list():
    (event,) = WatchDecoder(Pod).feed(line("MODIFIED", raw_pod(containers=None)))

    assert isinstance(event, ObjectEvent)
    assert event.object.spec.containers == ()


POISON = {
    "a number where a text belongs": line("ADDED", raw_pod(nodeName=7)),
    "not JSON": b"{]\n",
    "not an event": b'{"hello": "world"}\n',
    "a type from the future": line("RENAMED", raw_pod()),
    "an object without metadata": line("ADDED", {}),
}


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON)
def test_an_invalid_line_is_skipped_and_the_next_event_is_decoded(poison):
    skipped, after = WatchDecoder(Pod).feed(poison + line("ADDED", raw_pod("after")))

    assert isinstance(skipped, SkippedEvent)
    assert skipped.reason
    assert isinstance(after, ObjectEvent)


def test_an_invalid_object_keeps_its_name_and_version():
    (event,) = WatchDecoder(Pod).feed(line("DELETED", raw_pod("bad", nodeName=7)))

    assert isinstance(event, SkippedEvent)
    assert (event.type, event.namespace, event.name, event.resource_version) == (
        "DELETED",
        "shop",
        "bad",
        "1",
    )


def test_a_too_long_line_ends_the_watch(monkeypatch):
    monkeypatch.setattr(watch_protocol, "MAX_LINE_BYTES", 100)
    reader = WatchDecoder(Pod)

    assert reader.feed(b"x" * 99) == []
    (event,) = reader.feed(b"x" * 99)

    assert isinstance(event, WatchError)


lines = st.lists(
    st.sampled_from(
        [
            line("ADDED", raw_pod("a")),
            line("MODIFIED", raw_pod("b" * 300)),
            line("DELETED", msgspec.to_builtins(pod("c"))),
            bookmark("7"),
            b"poison\n",
            b"\n",
        ]
    )
)


@given(lines, st.lists(st.integers(1, 50)), st.booleans())
def test_chunk_boundaries_make_no_difference(stream, sizes, cut_off):
    data = b"".join(stream) + (b'{"type":"ADD' if cut_off else b"")
    whole = WatchDecoder(Pod).feed(data)

    reader, events = WatchDecoder(Pod), []
    for size in sizes:
        piece, data = data[:size], data[size:]
        events += reader.feed(piece)
    events += reader.feed(data)

    assert events == whole
    assert len(whole) == sum(1 for each in stream if each.strip())


DEEP = b"[" * 100_000 + b"]" * 100_000
UNREADABLE = {
    "an object that is nested too deeply": b'{"type":"ADDED","object":{"metadata":{"name":"a"},"x":'
    + DEEP
    + b"}}\n",
    "an object that is no UTF-8": b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n',
    "a line that is nested too deeply": DEEP + b"\n",
    "a type that is no UTF-8": b'{"type":"\xff","object":{}}\n',
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_line_is_skipped(text):
    skipped, event = WatchDecoder(Pod).feed(text + line("ADDED", raw_pod("web")))

    assert isinstance(skipped, SkippedEvent)
    assert isinstance(event, ObjectEvent)


def test_a_bookmark_with_unreadable_metadata_has_no_version():
    text = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"\xff"}}}\n'

    assert WatchDecoder(Pod).feed(text) == [Bookmark("")]
