"""A ranking returns the best candidate after any sequence of changes."""

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.model.refusal import Refusal
from croupier.extender.request_ranking import RequestRanking

FULL = Refusal("the node is full")
nodes = st.sampled_from([f"node-{number}" for number in range(8)])
merits = st.one_of(st.just(FULL), st.tuples(st.integers(0, 3), st.integers(0, 3)))


@given(st.lists(st.tuples(nodes, merits)), st.lists(nodes, unique=True))
def test_the_best_equals_that_of_a_full_search(changes, candidates):
    ranking, known = RequestRanking(), {}
    for node, merit in changes:
        ranking.forget(node)
        ranking.set(node, merit)
        known[node] = merit
    for node in ranking.missing(candidates):
        ranking.set(node, FULL)

    fits = sorted((known[node], node) for node in candidates if known.get(node, FULL) != FULL)

    assert ranking.best(candidates) == (fits[0][1] if fits else None)
    assert ranking.reasons(candidates).keys() == set(candidates) - {node for _, node in fits}


def test_a_forgotten_node_is_ranked_again():
    ranking = RequestRanking()
    ranking.set("node-1", (1,))
    ranking.set("node-2", (2,))

    ranking.forget("node-1")

    assert ranking.missing(["node-1", "node-2"]) == {"node-1"}
    assert ranking.best(["node-1", "node-2"]) == "node-2"
