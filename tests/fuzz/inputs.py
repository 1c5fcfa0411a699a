"""Hostile inputs: valid samples that were changed in a few places, and documents that were never valid.

Random bytes hardly get past a parser's first check. A sample that is wrong in one place reaches the others.
"""

import copy
import json
from typing import Any

from hypothesis import strategies as st

MAX_SENTENCE = 1_000
"""Characters of a refusal: it is shown in an Event or a terminal, whatever the input was."""

NUMBERS = (
    st.integers() | st.floats(allow_nan=False) | st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**400, 1e300])
)
WORDS = st.text(max_size=20) | st.sampled_from(
    ["", "a" * 70_000, "\x00", "٣", "../..", "\u2028", "null", "-1", "1e9"]
)
SCALARS = st.none() | st.booleans() | NUMBERS | WORDS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=8,
)
DEPTHS = st.sampled_from([10, 500, 2_000, 100_000])


@st.composite
def changed(draw: st.DrawFn, *samples: Any) -> Any:
    """A sample with up to three fields replaced, removed, added or moved."""
    document = copy.deepcopy(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(0, 3))):
        places = list(_places(document))
        if not places:
            return draw(VALUES)
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "remove", "add", "move"])):
            case "replace":
                holder[key] = draw(VALUES)
            case "remove":
                del holder[key]
            case "move":
                holder[key] = copy.deepcopy(draw(st.sampled_from(places))[0])
            case _ if isinstance(holder, dict):
                holder[draw(WORDS)] = draw(VALUES)
            case _:
                holder.append(draw(VALUES))
    return document


def _places(value: Any) -> Any:
    """Every field and list item below the value, as its container and key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


@st.composite
def mangled(draw: st.DrawFn, text: st.SearchStrategy[bytes]) -> bytes:
    """Bytes with pieces cut out, doubled or replaced."""
    data = draw(text)
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 20)))
        data = data[:start] + draw(st.binary(max_size=8) | st.just(data[start:end] * 2)) + data[end:]
    return data


@st.composite
def nested(draw: st.DrawFn) -> bytes:
    """JSON that is deeper than a recursive parser can follow, closed or cut off."""
    depth = draw(DEPTHS)
    opening, closing = draw(st.sampled_from([(b"[", b"]"), (b'{"a":', b"}")]))
    return opening * depth + b"1" + closing * draw(st.sampled_from([0, depth]))


def json_bodies(*samples: Any) -> st.SearchStrategy[bytes]:
    """Bodies that are nearly one of the samples, and some that are no JSON or too deep."""
    documents = changed(*samples).map(encoded)
    fields = sorted(
        {key for sample in samples for holder, key in _places(sample) if isinstance(holder, dict)}
    )
    deep = st.builds(_with_field, st.sampled_from(fields), nested())
    return documents | mangled(documents) | deep | nested() | st.binary(max_size=50)


def _with_field(name: str, value: bytes) -> bytes:
    return b'{"%s":%s}' % (name.encode(), value)


def encoded(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode(errors="surrogatepass")


def assert_is_sentence(text: str) -> None:
    """A refusal is one line of bounded length that says something."""
    assert text.strip()
    assert len(text) <= MAX_SENTENCE
    assert "\n" not in text
