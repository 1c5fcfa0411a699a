"""Which keys are deleted so that an API server is as it was, and when that is not possible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier_lab import etcd_keys
from croupier_lab.etcd_keys import OWN, ROOT, KeyRange

BEFORE = {f"{ROOT}namespaces/default": 4, f"{ROOT}namespaces/kube-system": 2}
LEASE = f"{OWN[1]}xyz"
APART = {
    "nothing": ({}, []),
    "one before all": ({f"{ROOT}minions/a": 9}, [KeyRange(f"{ROOT}minions/a", f"{ROOT}namespaces/default")]),
    "two side by side": (
        {f"{ROOT}pods/a/b": 9, f"{ROOT}pods/b/a": 9},
        [KeyRange(f"{ROOT}pods/a/b", etcd_keys.END)],
    ),
    "with one between": (
        {f"{ROOT}namespaces/d": 8, f"{ROOT}namespaces/e": 9},
        [
            KeyRange(f"{ROOT}namespaces/d", f"{ROOT}namespaces/default"),
            KeyRange(f"{ROOT}namespaces/e", f"{ROOT}namespaces/kube-system"),
        ],
    ),
    "what the API server writes for itself": ({LEASE: 9}, []),
}
LOST = {
    "something was changed": BEFORE | {f"{ROOT}namespaces/default": 9},
    "something is gone": {f"{ROOT}namespaces/default": 4},
    "a policy was added": BEFORE | {f"{ROOT}validatingadmissionpolicies/mine": 9},
}


@pytest.mark.parametrize(("new", "ranges"), APART.values(), ids=APART)
def test_what_was_added_is_deleted(new, ranges):
    assert etcd_keys.added(BEFORE, BEFORE | new) == ranges


@pytest.mark.parametrize("now", LOST.values(), ids=LOST)
def test_the_state_cannot_be_restored_if(now):
    assert etcd_keys.added(BEFORE, now) is None


def test_the_api_server_may_renew_its_lease():
    assert etcd_keys.added({LEASE: 1}, {LEASE: 2}) == []


KEYS = st.sets(st.text("abc/", min_size=1, max_size=4).map(lambda end: ROOT + end), max_size=12)


@given(KEYS, KEYS)
def test_exactly_what_was_added_is_deleted(before, new):
    ranges = etcd_keys.added(dict.fromkeys(before, 1), dict.fromkeys(before | new, 1))

    assert ranges is not None
    left = {key for key in before | new if not any(key in deleted for deleted in ranges)}
    assert left == before
    assert len(ranges) <= len(before) + 1
