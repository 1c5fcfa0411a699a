"""A tick in stories: busy pods rise in seconds, idle ones fall in their own time, every no has its words."""

from dataclasses import replace
from itertools import pairwise

import pytest

from croupier.core.market import books, ticking
from croupier.core.market.policy import Policy, Rate
from croupier.core.market.seen import Alone, Keep, Move
from croupier.core.market.units import MINUTE, SECOND
from tests.core.market_floor import STRICT, Floor, Guest, held, moves

ELASTIC = {"class": "elastic"}


def test_a_throttled_pod_is_raised_within_seconds_and_at_most_doubled_every_ten():
    floor = Floor(Guest("web", wants=350, limit=50))
    floor.run(40)

    raises = floor.moved("web")
    assert raises[0][0] <= 3
    assert [limit for _, limit in raises[:4]] == [100, 200, 400, 700]
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(raises)]
    assert min(gaps) >= 10


def test_an_idle_elastic_pod_falls_by_halves_with_a_minute_in_between():
    floor = Floor(Guest("job", wants=5, limit=400, request=20, annotations=ELASTIC))
    floor.run(600)

    falls = floor.moved("job")
    assert [limit for _, limit in falls] == [200, 100, 50, 25]
    assert falls[0][0] >= 60, "nothing is known of it before"
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(falls)]
    assert min(gaps) >= 60


def test_an_idle_latency_pod_keeps_what_it_came_with_while_nobody_needs_it():
    floor = Floor(Guest("web", wants=1, limit=100))
    floor.run(600)

    assert floor.moved("web") == []
    assert "nobody else needs what it has above that" in floor.said("web")


def test_a_latency_pod_keeps_what_it_lately_needed_and_then_comes_back():
    floor = Floor(Guest("web", wants=350, limit=100), policy=Policy(latency_peaks=5 * MINUTE))
    floor.run(60)
    high = floor.guests["web"].limit
    floor.guests["web"].wants = 5
    floor.run(200)
    assert floor.guests["web"].limit == high

    floor.run(900)
    assert floor.guests["web"].limit == 100


def test_after_throttling_nothing_falls_for_a_minute():
    floor = Floor(
        Guest("job", wants=300, limit=200, request=20, annotations=ELASTIC), policy=Policy(elastic_peaks=0)
    )
    floor.run(100)
    floor.guests["job"].wants = 600
    floor.run(20)
    floor.guests["job"].wants = 5
    last = floor.state.records["job"].history.throttled
    assert last is not None
    floor.run(120)

    falls = [second for second, move in floor.history if move.limit < move.before]
    assert last // SECOND > 100
    assert falls[0] >= last // SECOND + 60


def test_an_elastic_pod_gives_way_to_another_of_equal_right_although_it_is_throttled():
    """Its throttling says that it wants more, which is true of the other as well."""
    hog = Guest("hog", wants=2000, limit=700, annotations=ELASTIC)
    late = Guest("late", wants=2000, limit=20, annotations=ELASTIC)
    floor = Floor(hog, late, policy=Policy(elastic_peaks=0))
    floor.run(400)

    assert abs(hog.limit - late.limit) <= 2 + 700 * 15 // 100
    assert hog.limit + late.limit <= 720


def test_elastic_pods_get_what_latency_pods_leave_of_the_target():
    web = Guest("web", wants=300, limit=400)
    job = Guest("job", wants=2000, limit=100, annotations=ELASTIC)
    floor = Floor(web, job)
    floor.run(90)

    assert floor.last is not None
    assert floor.last.books["elastic"].supply == 720 - 300
    assert floor.guests["job"].limit <= 420


def test_what_an_idle_elastic_pod_must_keep_others_may_use_until_it_wakes():
    """A limit cannot go below the request; but nobody uses it, and the kernel gives it back at once."""
    idle = Guest("idle", wants=1, limit=400, request=400, annotations=ELASTIC)
    busy = Guest("busy", wants=2000, limit=100, request=100, annotations=ELASTIC)
    floor = Floor(idle, busy)
    floor.run(60)
    assert busy.limit > 720 - 400

    idle.wants = 2000
    floor.run(200)
    assert busy.limit <= 720 - 400


def test_decreases_land_before_increases():
    """Strict: what one gives back is not given to another before the kubelet has reported it."""
    rich = Guest("rich", wants=5, limit=700, request=10, annotations=ELASTIC)
    poor = Guest("poor", wants=900, limit=100, annotations=ELASTIC)
    floor = Floor(rich, poor, policy=STRICT, lag=5)
    seen = []
    for _ in range(400):
        floor.tick()
        seen.append(held(floor))

    assert max(seen) <= 800
    assert floor.guests["poor"].limit > 400
    first_fall = floor.moved("rich")[0][0]
    assert floor.moved("poor")[0][0] >= first_fall + 5


def test_what_is_on_its_way_down_is_not_called_in_twice():
    """All shares are 200. `most` gives enough for `least`, and so `some` need not be asked for its little."""
    limits = {"most": 280, "some": 215, "less": 175, "least": 130}
    guests = [Guest(name, wants=2000, limit=limit, annotations=ELASTIC) for name, limit in limits.items()]
    floor = Floor(*guests, policy=STRICT, lag=10)
    floor.run(200)

    told = {name: [limit for _, limit in floor.moved(name)] for name in limits}
    assert told == {"most": [200], "some": [], "less": [], "least": [200]}


def test_strict_never_promises_more_than_there_is_but_does_not_hurt_who_came_with_it():
    """Pods that arrive with too much are brought down in their own time; nobody is raised until then."""
    guests = [Guest(f"web-{number}", wants=5, limit=400) for number in range(4)]
    floor = Floor(*guests, policy=STRICT)
    floor.guests["web-0"].wants = 600
    before = held(floor)
    for _ in range(300):
        floor.tick()
        assert held(floor) <= max(800, before)
        before = held(floor)

    assert held(floor) <= 800
    assert floor.guests["web-0"].limit > 400


def test_what_was_decided_is_repeated_until_it_is_seen_written():
    floor = Floor(Guest("web", wants=200, limit=50))
    floor.writes = False
    said = [tuple(moves(floor.tick().decisions)) for _ in range(40)]
    first = next(index for index, one in enumerate(said) if one)

    assert {one.limit for round_ in said[first : first + 30] for one in round_} == {100}
    assert all(len(round_) == 1 for round_ in said[first : first + 30])
    assert len({one.sentence for round_ in said[first : first + 30] for one in round_}) == 1


def test_a_pod_recreated_under_its_name_is_another_pod():
    floor = Floor(Guest("web", wants=200, limit=50))
    floor.run(30)
    floor.guests["web"] = Guest("web", wants=1, limit=50, uid="another")
    floor.run(5)

    assert set(floor.state.records) == {"another"}
    assert floor.guests["web"].limit == 50


def test_a_restarted_agent_forgets_no_original_and_does_not_hurry():
    floor = Floor(
        Guest("job", wants=5, limit=400, request=10, annotations=ELASTIC), policy=Policy(elastic_peaks=0)
    )
    floor.run(200)
    shrunken = floor.guests["job"].limit
    assert shrunken < 400
    floor.restart_agent()
    floor.run(59)
    assert floor.guests["job"].limit == shrunken

    floor.guests["job"].wants = 600
    floor.run(60)
    assert floor.guests["job"].limit > 400


WORDS = {
    "not managed": (
        Guest("pod", labels={}),
        Alone,
        'it does not carry the label mbcas.io/managed: "true"',
    ),
    "a bad annotation": (
        Guest("pod", annotations={"class": "fast"}),
        Alone,
        'annotation mbcas.io/class is "fast": it must be latency or elastic',
    ),
    "paused": (
        Guest("pod", wants=300, annotations={"paused": "true"}),
        Keep,
        "stays at 1: it is paused by its owner",
    ),
    "unreadable": (
        Guest("pod", wants=300, readable=False),
        Keep,
        "stays at 1: its CPU counters could not be read yet, or for too long",
    ),
    "at its cap": (
        Guest("pod", wants=300, annotations={"max_cpu": "1"}),
        Keep,
        "stays at 1: with headroom it asks for 4 and is throttled in 100 % of its periods,"
        " and 1 is the most it may have",
    ),
    "raised": (
        Guest("pod", wants=300),
        Move,
        "raised from 1 to 2: with headroom it asks for 4 and is throttled in 100 % of its periods",
    ),
    "above its throttle target": (
        Guest("pod", wants=101, annotations={"throttle_target": "0.999", "max_cpu": "1"}),
        Keep,
        "is throttled in 100 % of its periods",
    ),
}


@pytest.mark.parametrize(("guest", "kind", "sentence"), WORDS.values(), ids=WORDS)
def test_every_decision_has_its_sentence(guest, kind, sentence):
    floor = Floor(replace(guest))
    floor.run(2)

    assert floor.last is not None
    (decision,) = floor.last.decisions
    assert isinstance(decision, kind)
    assert sentence in decision.sentence


HELD = {
    "after a move": (Floor(Guest("pod", wants=600, limit=50)), 8, "it may rise again in"),
    "not worth it": (
        Floor(Guest("pod", wants=52, limit=100, annotations={"class": "elastic", "max_cpu": "1"})),
        200,
        "",
    ),
    "moves used up": (
        Floor(
            Guest("pod", wants=600, limit=10),
            policy=replace(Policy(), churn=replace(Policy().churn, pod=Rate(2, 6 * MINUTE))),
        ),
        40,
        "it has used up its moves; the next in",
    ),
    "the node's moves used up": (
        Floor(
            *(Guest(name, wants=600, limit=10) for name in ("pod", "a", "b")),
            policy=replace(Policy(), churn=replace(Policy().churn, node=Rate(1, MINUTE))),
        ),
        4,
        "the node has used up its moves for now",
    ),
    "no room": (
        Floor(Guest("pod", wants=600, limit=400), Guest("other", wants=600, limit=400), policy=STRICT),
        30,
        "its weight buys 4",
    ),
}


@pytest.mark.parametrize(("floor", "seconds", "reason"), HELD.values(), ids=HELD)
def test_what_is_held_back_says_why(floor, seconds, reason):
    floor.run(seconds)

    assert reason in floor.said("pod")


def test_the_factor_rises_while_limits_alone_are_in_the_way_and_falls_on_a_full_node():
    policy, node = Policy(), books.Node(800)
    factor = books.begin(policy, 0)
    assert factor.thousandths == 4000

    def after(seconds: int, usage: int, wanting: bool) -> int:
        now = books.begin(policy, 0)
        for second in range(seconds):
            now = books.adapt(
                now, usage, node=node, wanting=wanting, policy=policy, now=(second + 1) * SECOND
            )
        return now.thousandths

    quiet, full = 2 * SECOND, 8 * SECOND
    assert after(60, quiet, wanting=False) == 4000
    assert after(10, quiet, wanting=True) == 4250
    assert after(3600, quiet, wanting=True) == 8000
    assert after(10, full, wanting=True) == 3500
    assert after(3600, full, wanting=True) == 2000


def test_an_empty_node_has_nothing_to_decide():
    done = ticking.tick(Floor().state, Floor().observe(), Policy(), 0)

    assert done.decisions == ()


def test_a_decrease_that_could_not_be_written_frees_nothing():
    """It was told 600 and has 100 yet; that it should fall again is decided, but the API server says no."""
    slow = Guest("slow", wants=5, limit=100, desired=600, annotations=ELASTIC)
    busy = Guest("busy", wants=700, limit=100, annotations=ELASTIC)
    floor = Floor(slow, busy, policy=replace(STRICT, elastic_peaks=0), lag=10_000)
    floor.refused = {"slow"}
    floor.run(90)

    assert floor.last is not None
    assert [one.limit for one in moves(floor.last.decisions)] == [300], "it is told to fall, in vain"
    assert held(floor) <= 800


def test_whoever_cannot_be_traded_any_more_keeps_what_it_was_given():
    """In strict mode what it holds is not for sale, although its annotations cannot be read now."""
    given = Guest("given", wants=500, limit=600, desired=600, annotations={"weight": "heavy"})
    busy = Guest("busy", wants=700, limit=100)
    floor = Floor(given, busy, policy=STRICT)
    floor.run(60)

    assert floor.guests["busy"].limit == 200
    assert held(floor) <= 800


def test_who_does_not_get_what_it_was_told_is_not_told_more():
    """A quota of its namespace, for one, may stand in the way: else it would be promised all there is."""
    busy = Guest("busy", wants=700, limit=100)
    floor = Floor(busy, policy=STRICT, lag=10_000)
    floor.run(120)

    assert [limit for _, limit in floor.moved("busy")] == [200]
    assert "what it was told last is not in force yet" in floor.said("busy")
