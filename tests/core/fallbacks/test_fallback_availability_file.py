"""Reads the resources of nodes from a file in every supported format."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.availability import Availability
from croupier.core.fallbacks import availability_file as fallback_offer
from croupier.core.model.refusal import Refusal

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
def test_all_formats_are_equivalent(text):
    index = read(text)

    assert str(index.total(SMALL).allocatable) == "28"
    assert (index.exists(SMALL), index.exists(LARGE), index.exists("nvidia.com/gpu")) == (True, False, False)


def test_a_node_without_resources_is_accepted():
    assert read("n:").nodes() == {"n"}


def test_short_names_are_completed_and_full_names_kept():
    index = read("n: {gpu: 1, mig-1g.10gb: 2, gpu.mps.io/percent: 300, cpu: 4}")

    assert {name: str(index.total(name).allocatable) for name in index.resources()} == {
        "nvidia.com/gpu": "1",
        SMALL: "2",
        "gpu.mps.io/percent": "300",
        "cpu": "4",
    }


def test_bound_pods_use_their_requests_until_they_finish():
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

    assert str(index.max_free(SMALL)) == "6"


BAD = {
    "nothing": ("", "it describes no node"),
    "only a pod": ("kind: Pod", "it describes no node"),
    "a list": ("[1]", "it must contain Nodes or a map from node name to resources, but contains [1]"),
    "no count": ("n: {gpu: many}", "node n, gpu: 'many' is not a quantity"),
    "no map": ("n: 4", f"node n must be a map from resource to count, such as {SMALL}: 28"),
    "no names": ("n: {1: 2}", f"node n must be a map from resource to count, such as {SMALL}: 28"),
    "no name": ("kind: Node", "a Node must have a name in its metadata"),
    "metadata that is a list": ("{kind: Node, metadata: [n]}", "metadata of a Node must be a map"),
    "a status of a pod that is text": (
        "{kind: Pod, metadata: {name: p}, spec: {containers: []}, status: good}",
        "status of pod p must be a map",
    ),
    "a status that is text": (
        "{kind: Node, metadata: {name: n}, status: good}",
        "status of node n must be a map",
    ),
    "an invalid pod": (
        "{kind: Pod, spec: 1}",
        "a Pod cannot be read: spec must be a mapping, but is a number",
    ),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_an_invalid_file_is_refused_with_a_message(text, said):
    refused = fallback_offer.read(yaml.safe_load_all(text))

    assert isinstance(refused, Refusal)
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
def test_any_file_content_can_be_read(documents):
    assert isinstance(fallback_offer.read(documents), Availability | Refusal)
