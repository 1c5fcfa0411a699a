"""What nodes offer, read from a file in every form a person may have it in."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.availability import Availability
from croupier.core.fallbacks import offer as fallback_offer
from croupier.core.ledgers.ledger import Refused

SMALL, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"

OFFERS = {
    "a map": "n: {nvidia.com/mig-1g.10gb: 28, nvidia.com/mig-2g.20gb: 0}",
    "short names": 'n: {mig-1g.10gb: "28", mig-2g.20gb: 0, cpu: 64}',
    "two nodes": "n: {mig-1g.10gb: 14}\nm: {mig-1g.10gb: 14, mig-2g.20gb: 0}",
    "a Node": "{kind: Node, metadata: {name: n}, status: {allocatable: {nvidia.com/mig-1g.10gb: '28'}}}",
    "a List of other things too": """
        kind: List
        items:
        - {kind: Service, metadata: {name: n}}
        - {kind: Node, metadata: {name: n}, status: {allocatable: {nvidia.com/mig-1g.10gb: "28"}}}
        - {kind: Pod, metadata: {name: waiting}, spec: {containers: []}}
        """,
    "several documents": """
---
---
kind: Node
metadata: {name: n}
status: {allocatable: {nvidia.com/mig-1g.10gb: "14"}, capacity: {nvidia.com/mig-2g.20gb: "9"}}
---
kind: Node
metadata: {name: m}
status: {allocatable: {nvidia.com/mig-1g.10gb: "14"}}
""",
}


def read(text: str) -> Availability:
    index = fallback_offer.read(yaml.safe_load_all(text))
    assert isinstance(index, Availability), index
    return index


@pytest.mark.parametrize("text", OFFERS.values(), ids=OFFERS)
def test_every_form_says_the_same(text):
    index = read(text)

    assert str(index.total(SMALL).allocatable) == "28"
    assert (index.exists(SMALL), index.exists(LARGE), index.exists("nvidia.com/gpu")) == (True, False, False)


def test_a_node_without_anything_is_a_node():
    assert read("n:").nodes() == {"n"}


def test_pods_on_nodes_take_what_they_ask_for_until_they_have_finished():
    index = read(
        """
kind: List
items:
- {kind: Node, metadata: {name: n}, status: {allocatable: {nvidia.com/mig-1g.10gb: 10}}}
- kind: Pod
  metadata: {name: runs, namespace: a}
  spec:
    nodeName: n
    containers: [{resources: {limits: {nvidia.com/mig-1g.10gb: 2}}}]
    initContainers: [{resources: {limits: {nvidia.com/mig-1g.10gb: 3}}}]
- kind: Pod
  metadata: {name: runs, namespace: b}
  spec: {nodeName: n, containers: [{resources: {limits: {nvidia.com/mig-1g.10gb: 1}}}]}
- kind: Pod
  metadata: {name: done, namespace: a}
  spec: {nodeName: n, containers: [{resources: {limits: {nvidia.com/mig-1g.10gb: 5}}}]}
  status: {phase: Succeeded}
- kind: Pod
  metadata: {name: waits, namespace: a}
  spec: {containers: [{resources: {limits: {nvidia.com/mig-1g.10gb: 5}}}]}
"""
    )

    assert str(index.most_free(SMALL)) == "6"


BAD = {
    "nothing": ("", "it tells of no node"),
    "only a pod": ("kind: Pod", "it tells of no node"),
    "a list": ("[1]", "it must have Nodes, or a map from node to what it has, and has [1]"),
    "no count": ("n: {gpu: many}", "node n, gpu: 'many' is no quantity"),
    "no map": ("n: 4", f"node n must be a map from resource to count, such as {SMALL}: 28"),
    "no names": ("n: {1: 2}", f"node n must be a map from resource to count, such as {SMALL}: 28"),
    "no name": ("kind: Node", "a Node must have a name in its metadata"),
    "a status that is text": (
        "{kind: Node, metadata: {name: n}, status: good}",
        "status of node n must be a map",
    ),
    "a pod that is none": (
        "{kind: Pod, spec: 1}",
        "a Pod cannot be read: spec must be a mapping, and is a number",
    ),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_what_tells_of_no_nodes_is_refused_in_a_sentence(text, said):
    refused = fallback_offer.read(yaml.safe_load_all(text))

    assert isinstance(refused, Refused)
    assert str(refused).startswith(said)


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(("Node", "Pod", "List")),
    lambda inside: (
        st.lists(inside, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("kind", "items", "metadata", "name", "status", "allocatable", "spec", "nodeName", SMALL)
            ),
            inside,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JUNK, max_size=3))
def test_nothing_in_a_file_makes_it_fall(documents):
    assert isinstance(fallback_offer.read(documents), Availability | Refused)
