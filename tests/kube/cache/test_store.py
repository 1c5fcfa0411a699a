"""The store and its indexes equal their inputs, and subscribers are notified only of real changes."""

import logging
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from croupier.kube.cache.store import ObjectChange, Store, open_indexes
from croupier.kube.client.identity import Key
from tests.kube.builders import NODES, PODS, Pod, pod

WEB = Key("shop", "web")


def by_node(found: Pod) -> list[str]:
    return [found.spec.node_name] if found.spec.node_name else []


def changes_of(store: Store[Pod]) -> list[tuple[str | None, str | None]]:
    """Old and new resourceVersion of every change from now on."""
    heard: list[tuple[str | None, str | None]] = []

    def version(found: Pod | None) -> str | None:
        return found.metadata.resource_version if found else None

    store.subscribe(lambda change: heard.append((version(change.old), version(change.new))))
    return heard


def test_the_same_version_is_no_change():
    store = Store(PODS)
    heard = changes_of(store)

    assert store.put(pod(version="1"))
    assert not store.put(pod(version="1"))
    assert store.put(pod(version="opaque"))
    assert store.remove(WEB)
    assert not store.remove(WEB)

    assert heard == [(None, "1"), ("1", "opaque"), ("opaque", None)]


def test_a_recreated_object_is_a_deletion_and_an_addition():
    store = Store(PODS)
    store.put(pod(version="1"))
    heard = changes_of(store)

    meta = msgspec.structs.replace(pod().metadata, uid="another", resource_version="9")
    store.put(Pod(metadata=meta))

    assert heard == [("1", None), (None, "9")]


def test_an_index_follows_its_objects_and_forgets_empty_values():
    store = Store(PODS)
    store.put(pod("early", node="n1"))
    on = store.index(by_node)
    store.put(pod("late", node="n1"))
    store.put(pod("early", node="n2", version="2"))

    assert [found.metadata.name for found in on.get("n1")] == ["late"]
    store.remove(Key("shop", "late"))
    assert list(on.values()) == ["n2"]
    assert on.get("n1") == []


def test_an_index_is_updated_only_while_it_is_open():
    store = Store(PODS)
    on = store.index(by_node)
    with open_indexes(on):
        store.put(pod("early", node="n1"))
        assert [found.metadata.name for found in on.get("n1")] == ["early"]
    assert store.load == (0, 0)
    store.put(pod("late", node="n1"))
    with pytest.raises(RuntimeError, match="used after it was closed"):
        on.get("n1")

    with open_indexes(on):
        assert [found.metadata.name for found in on.get("n1")] == ["early", "late"]
        assert store.load == (1, 0)
    on.close()
    assert store.load == (0, 0)


def test_plain_dicts_can_be_stored_too():
    store = Store(NODES)
    store.put({"metadata": {"name": "n1", "uid": "u", "resourceVersion": "1"}})

    assert store.named("n1") is not None
    assert store.get(Key("", "n1")) is store.named("n1")


def test_one_failing_subscriber_does_not_affect_the_others(caplog):
    store = Store(PODS)

    def fails(_: ObjectChange[Pod]) -> None:
        raise RuntimeError("a bug")

    store.subscribe(fails)
    heard = changes_of(store)
    with caplog.at_level(logging.ERROR):
        store.put(pod())

    assert heard == [(None, "1")]
    assert "a bug" in caplog.text


def test_an_object_that_fails_its_index_changes_nothing():
    store = Store(PODS)
    heard = changes_of(store)
    store.index(lambda found: [found.spec.containers[0].name])

    with pytest.raises(IndexError):
        store.put(pod())

    assert (len(store), heard) == (0, [])


def test_an_unsubscribed_callback_is_not_called():
    store, heard = Store(PODS), list[Any]()
    end = store.subscribe(heard.append)
    end()
    end()
    store.put(pod())

    assert heard == []


def test_subscribers_are_notified_of_complete_lists():
    store, moments = Store(PODS), list[float]()
    store.subscribe(lambda _: None, relisted=moments.append)
    store.relisted(12.5)

    assert moments == [12.5]


def test_keys_missing_from_a_list_are_found():
    store = Store(PODS)
    store.put(pod("stays"))
    store.put(pod("goes"))

    assert store.missing_from([pod("stays", version="2")]) == [Key("shop", "goes")]


class StoreStory(RuleBasedStateMachine):
    """For any order of changes, the store, its index and a replica built from notifications agree."""

    names = st.sampled_from(["a", "b", "c"])

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(PODS)
        self.on = self.store.index(by_node)
        self.model: dict[Key, Pod] = {}
        self.replica: dict[Key, Pod] = {}
        self.store.subscribe(self.replicate)

    def replicate(self, change: ObjectChange[Pod]) -> None:
        assert self.replica.get(change.key) == change.old, "old must be the last notified version"
        assert change.old != change.new, "only real changes are notified"
        if change.new is None:
            del self.replica[change.key]
        else:
            self.replica[change.key] = change.new

    @rule(name=names, node=st.none() | names, version=st.sampled_from("12345"))
    def put(self, name: str, node: str | None, version: str) -> None:
        new = pod(name, node=node, version=version)
        key = Key("shop", name)
        held = self.model.get(key)
        self.store.put(new)
        if held is None or held.metadata.resource_version != version:
            self.model[key] = new

    @rule(name=names)
    def remove(self, name: str) -> None:
        self.store.remove(Key("shop", name))
        self.model.pop(Key("shop", name), None)

    @invariant()
    def all_agree(self) -> None:
        assert dict(zip(self.store.keys(), self.store, strict=True)) == self.model == self.replica
        for node in ("a", "b", "c"):
            expected = {key for key, found in self.model.items() if found.spec.node_name == node}
            assert set(self.on.keys(node)) == expected


TestStoreStory = StoreStory.TestCase
TestStoreStory.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
