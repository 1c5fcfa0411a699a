"""An explanation without the ledger says nothing about the ledger."""

import pytest

from croupier.core.explanation import own_pod
from croupier.core.explanation.own_pod import PoolAmount
from croupier.core.model.card import CardGrant
from croupier.core.model.card_request import CardShares, PoolUnits
from croupier.core.model.pod_view import PodView
from croupier.core.pods.scheduler_filters import NodeConstraints

HALF = (CardShares(1, 50),)
GRANT = (CardGrant("GPU-1", 50), CardGrant("GPU-2", 50))

SENTENCES = {
    "bound": (
        PodView("a/p", "u", "node-1", wants=HALF, grant=GRANT, indexes=(0, 3), marked=True),
        ("Bound", "the pod is bound to node-1 and holds card 0 (GPU-1) and card 3 (GPU-2)"),
    ),
    "bound, indexes unknown": (
        PodView("a/p", "u", "node-1", wants=HALF, grant=GRANT, marked=True),
        ("Bound", "the pod is bound to node-1 and holds card GPU-1 and card GPU-2"),
    ),
    "bound without an allocation": (
        PodView("a/p", "u", "node-1", wants=HALF, marked=True),
        ("Bound", "the pod is bound to node-1 and records no allocation of cards"),
    ),
    "bound with an invalid request": (
        PodView("a/p", "u", "node-1", trouble="gpu.mps.io/ratio: must be 1 to 100", marked=True),
        ("Bound", "the pod is bound to node-1 and records no allocation of cards"),
    ),
    "bound without cards": (
        PodView("a/p", "u", "node-1"),
        ("NoCards", "the pod is bound to node-1 and asks for no cards"),
    ),
    "finished": (
        PodView("a/p", "u", "node-1", finished=True, grant=GRANT),
        ("Finished", "the pod has finished and no longer needs cards"),
    ),
    "invalid request": (
        PodView("a/p", "u", trouble="gpu.mps.io/ratio: must be 1 to 100", marked=True),
        ("Unreadable", "gpu.mps.io/ratio: must be 1 to 100"),
    ),
    "pending": (PodView("a/p", "u", wants=HALF, marked=True), ("Pending", "0/3 nodes are available")),
}


@pytest.mark.parametrize(("pod", "told"), SENTENCES.values(), ids=SENTENCES)
def test_what_the_pod_alone_tells(pod: PodView, told: tuple[str, str]):
    found = own_pod.explain(pod, NodeConstraints(), message="0/3 nodes are available")

    assert (found.state, found.sentence) == told
    assert "ledger" not in found.sentence


def test_a_pending_pod_without_a_message_gets_the_amounts_of_its_pool():
    pod = PodView("a/p", "u", wants=(PoolUnits("training", 2),), marked=True)

    found = own_pod.explain(pod, NodeConstraints(), message="", pools=[PoolAmount("training", 3, 8, "Card")])

    assert found.sentence == own_pod.NO_MESSAGE
    assert found.notes == ("pool training has 3 of 8 units (Card) available",)
