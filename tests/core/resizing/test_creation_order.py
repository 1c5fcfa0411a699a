"""Only the oldest objects of a group count, whatever the order in which they are observed."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.resizing.creation_order import CreationOrder

START = datetime(2030, 1, 31, 12, tzinfo=UTC)
OBJECTS = st.dictionaries(
    st.tuples(st.sampled_from("abcdefgh")), st.integers(0, 3).map(lambda n: START + timedelta(seconds=n))
)


@given(OBJECTS, st.integers(1, 4), st.data())
def test_the_oldest_count_and_a_removal_lets_the_next_one_count(objects, limit, data):
    order: CreationOrder[str, tuple[str]] = CreationOrder(limit)
    for key in data.draw(st.permutations(sorted(objects))):
        order.add("group", objects[key], key)
        order.add("other", START, key)
    oldest = sorted(objects, key=lambda key: (objects[key], key))

    assert order.first("group") == oldest[:limit]
    assert order.around_limit("group") == oldest[limit - 1 : limit + 1]
    for key, created in objects.items():
        assert order.counts("group", created, key) == (key in oldest[:limit])

    for key in oldest[:limit]:
        order.remove("group", objects[key], key)
        assert order.counts("group", objects[key], key), "a removed object is still known to have counted"
    assert order.first("group") == oldest[limit : 2 * limit]
    assert order.first("other") == sorted(objects)[:limit]
    order.clear()
    assert order.first("other") == []
