"""Ticks over time: busy pods are raised within seconds, idle ones are lowered slowly, with reasons."""

from copy import deepcopy
from dataclasses import replace
from itertools import pairwise

import pytest

from croupier.core.market import cpu_supply, ticking
from croupier.core.market.model import KeepLimit, NotManaged, SetLimit
from croupier.core.market.policy import MarketPolicy, ResizeRate
from croupier.core.market.units import MINUTE, SECOND
from tests.core.market_env import STRICT, MarketEnv, MarketTestPod, held, moves

ELASTIC = {"class": "elastic"}


def test_a_throttled_pod_is_raised_within_seconds_and_at_most_doubled_every_ten():
    env = MarketEnv(MarketTestPod("web", wants=350, limit=50))
    env.run(40)

    raises = env.moved("web")
    assert raises[0][0] <= 3
    assert [limit for _, limit in raises[:4]] == [100, 200, 400, 700]
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(raises)]
    assert min(gaps) >= 10


def test_an_idle_elastic_pod_is_halved_once_a_minute():
    env = MarketEnv(MarketTestPod("job", wants=5, limit=400, request=20, annotations=ELASTIC))
    env.run(600)

    falls = env.moved("job")
    assert [limit for _, limit in falls] == [200, 100, 50, 25]
    assert falls[0][0] >= 60, "not before the first minute"
    gaps = [later[0] - earlier[0] for earlier, later in pairwise(falls)]
    assert min(gaps) >= 60


def test_an_idle_latency_pod_keeps_its_original_limit_while_cpu_is_free():
    env = MarketEnv(MarketTestPod("web", wants=1, limit=100))
    env.run(600)

    assert env.moved("web") == []
    assert "no other pod needs the rest" in env.said("web")


def test_a_latency_pod_keeps_its_recent_peak_and_then_returns():
    env = MarketEnv(MarketTestPod("web", wants=350, limit=100), policy=MarketPolicy(latency_peaks=5 * MINUTE))
    env.run(60)
    high = env.pods["web"].limit
    env.pods["web"].wants = 5
    env.run(200)
    assert env.pods["web"].limit == high

    env.run(900)
    assert env.pods["web"].limit == 100


def test_a_throttled_pod_is_not_lowered_for_a_minute():
    env = MarketEnv(
        MarketTestPod("job", wants=300, limit=200, request=20, annotations=ELASTIC),
        policy=MarketPolicy(elastic_peaks=0),
    )
    env.run(100)
    env.pods["job"].wants = 600
    env.run(20)
    env.pods["job"].wants = 5
    last = env.state.records["job"].history.throttled
    assert last is not None
    env.run(120)

    falls = [second for second, move in env.history if move.limit < move.before]
    assert last // SECOND > 100
    assert falls[0] >= last // SECOND + 60


def test_a_throttled_elastic_pod_yields_to_another_of_equal_weight():
    """Both are throttled and have the same right to the CPU."""
    hog = MarketTestPod("hog", wants=2000, limit=700, annotations=ELASTIC)
    late = MarketTestPod("late", wants=2000, limit=20, annotations=ELASTIC)
    env = MarketEnv(hog, late, policy=MarketPolicy(elastic_peaks=0))
    env.run(400)

    assert abs(hog.limit - late.limit) <= 2 + 700 * 15 // 100
    assert hog.limit + late.limit <= 720


def test_elastic_pods_get_what_latency_pods_leave_of_the_target():
    web = MarketTestPod("web", wants=300, limit=400)
    job = MarketTestPod("job", wants=2000, limit=100, annotations=ELASTIC)
    env = MarketEnv(web, job)
    env.run(90)

    assert env.last is not None
    assert env.last.books["elastic"].supply == 720 - 300
    assert env.pods["job"].limit <= 420


def test_the_idle_floor_of_an_elastic_pod_can_be_used_by_others():
    """A limit cannot go below the request; others may use the idle CPU, as the kernel returns it at once."""
    idle = MarketTestPod("idle", wants=1, limit=400, request=400, annotations=ELASTIC)
    busy = MarketTestPod("busy", wants=2000, limit=100, request=100, annotations=ELASTIC)
    env = MarketEnv(idle, busy)
    env.run(60)
    assert busy.limit > 720 - 400

    idle.wants = 2000
    env.run(200)
    assert busy.limit <= 720 - 400


def test_decreases_are_applied_before_raises():
    """Strict mode: a decrease is not granted to another pod before the kubelet has reported it."""
    rich = MarketTestPod("rich", wants=5, limit=700, request=10, annotations=ELASTIC)
    poor = MarketTestPod("poor", wants=900, limit=100, annotations=ELASTIC)
    env = MarketEnv(rich, poor, policy=STRICT, lag=5)
    seen = []
    for _ in range(400):
        env.tick()
        seen.append(held(env))

    assert max(seen) <= 800
    assert env.pods["poor"].limit > 400
    first_fall = env.moved("rich")[0][0]
    assert env.moved("poor")[0][0] >= first_fall + 5


def test_a_pending_decrease_is_not_requested_twice():
    """All shares are 200. The decrease of `most` is enough for `least`, so `some` is not lowered."""
    limits = {"most": 280, "some": 215, "less": 175, "least": 130}
    pods = [
        MarketTestPod(name, wants=2000, limit=limit, annotations=ELASTIC) for name, limit in limits.items()
    ]
    env = MarketEnv(*pods, policy=STRICT, lag=10)
    env.run(200)

    told = {name: [limit for _, limit in env.moved(name)] for name in limits}
    assert told == {"most": [200], "some": [], "less": [], "least": [200]}


def test_free_cpu_is_divided_by_weight():
    """The decrease of `idle` frees 200, less than both raises need: then 600 are held by weight."""
    pods = [
        MarketTestPod("idle", wants=5, limit=400, annotations=ELASTIC),
        MarketTestPod("heavy", wants=2000, limit=250, annotations={**ELASTIC, "weight": "1.5"}),
        MarketTestPod("light", wants=2000, limit=150, annotations=ELASTIC),
    ]
    env = MarketEnv(*pods, policy=replace(STRICT, elastic_peaks=0))
    env.run(65)

    told = {name: [limit for _, limit in env.moved(name)] for name in env.pods}
    assert told == {"idle": [200], "heavy": [360], "light": [240]}


def test_strict_mode_never_exceeds_the_supply_but_keeps_original_limits_at_first():
    """Pods that start with too much are lowered over time; no pod is raised until then."""
    pods = [MarketTestPod(f"web-{number}", wants=5, limit=400) for number in range(4)]
    env = MarketEnv(*pods, policy=STRICT)
    env.pods["web-0"].wants = 600
    before = held(env)
    for _ in range(300):
        env.tick()
        assert held(env) <= max(800, before)
        before = held(env)

    assert held(env) <= 800
    assert env.pods["web-0"].limit > 400


def test_a_decision_is_repeated_until_its_write_is_observed():
    env = MarketEnv(MarketTestPod("web", wants=200, limit=50))
    env.writes = False
    said = [tuple(moves(env.tick().decisions)) for _ in range(40)]
    first = next(index for index, one in enumerate(said) if one)

    assert {(one.before, one.limit) for round_ in said[first : first + 30] for one in round_} == {(50, 100)}
    assert all(len(round_) == 1 for round_ in said[first : first + 30])
    assert len({one.sentence for round_ in said[first : first + 30] for one in round_}) == 1


def test_a_recreated_pod_starts_without_history():
    env = MarketEnv(MarketTestPod("web", wants=200, limit=50))
    env.run(30)
    env.pods["web"] = MarketTestPod("web", wants=1, limit=50, uid="another")
    env.run(5)

    assert set(env.state.records) == {"another"}
    assert env.pods["web"].limit == 50


def test_a_restarted_agent_knows_the_originals_and_waits():
    env = MarketEnv(
        MarketTestPod("job", wants=5, limit=400, request=10, annotations=ELASTIC),
        policy=MarketPolicy(elastic_peaks=0),
    )
    env.run(200)
    shrunken = env.pods["job"].limit
    assert shrunken < 400
    env.restart_agent()
    env.run(59)
    assert env.pods["job"].limit == shrunken

    env.pods["job"].wants = 600
    env.run(60)
    assert env.pods["job"].limit > 400


WORDS = {
    "not managed": (
        MarketTestPod("pod", labels={}),
        NotManaged,
        'it does not have the label mbcas.io/managed: "true"',
    ),
    "a bad annotation": (
        MarketTestPod("pod", annotations={"class": "fast"}),
        NotManaged,
        'annotation mbcas.io/class is "fast": it must be latency or elastic',
    ),
    "paused": (
        MarketTestPod("pod", wants=300, annotations={"paused": "true"}),
        KeepLimit,
        "stays at 1: it is paused by its owner",
    ),
    "unreadable": (
        MarketTestPod("pod", wants=300, readable=False),
        KeepLimit,
        "stays at 1: its CPU counters have not been read yet or are too old",
    ),
    "at its cap": (
        MarketTestPod("pod", wants=300, annotations={"max_cpu": "1"}),
        KeepLimit,
        "stays at 1: with headroom it needs 4 and is throttled in 100 % of its periods, and its maximum is 1",
    ),
    "raised": (
        MarketTestPod("pod", wants=300),
        SetLimit,
        "raised from 1 to 2: with headroom it needs 4 and is throttled in 100 % of its periods",
    ),
    "above its throttle target": (
        MarketTestPod("pod", wants=101, annotations={"throttle_target": "0.999", "max_cpu": "1"}),
        KeepLimit,
        "is throttled in 100 % of its periods",
    ),
}


@pytest.mark.parametrize(("guest", "kind", "sentence"), WORDS.values(), ids=WORDS)
def test_every_decision_has_a_reason(guest, kind, sentence):
    env = MarketEnv(replace(guest))
    env.run(2)

    assert env.last is not None
    (decision,) = env.last.decisions
    assert isinstance(decision, kind)
    assert sentence in decision.sentence


HELD = {
    "after a change": (MarketEnv(MarketTestPod("pod", wants=600, limit=50)), 8, "it may be raised in"),
    "too small": (
        MarketEnv(
            MarketTestPod("pod", wants=52, limit=100, annotations={"class": "elastic", "max_cpu": "1"})
        ),
        200,
        "",
    ),
    "budget used up": (
        MarketEnv(
            MarketTestPod("pod", wants=600, limit=10),
            policy=replace(
                MarketPolicy(), churn=replace(MarketPolicy().churn, pod=ResizeRate(2, 6 * MINUTE))
            ),
        ),
        40,
        "its resize budget is used up; the next resize is possible in",
    ),
    "budget of the node used up": (
        MarketEnv(
            *(MarketTestPod(name, wants=600, limit=10) for name in ("pod", "a", "b")),
            policy=replace(MarketPolicy(), churn=replace(MarketPolicy().churn, node=ResizeRate(1, MINUTE))),
        ),
        4,
        "the resize budget of the node is used up for now",
    ),
    "no free CPU": (
        MarketEnv(
            MarketTestPod("pod", wants=600, limit=400),
            MarketTestPod("other", wants=600, limit=400),
            policy=STRICT,
        ),
        30,
        "the share of its weight is 4",
    ),
}


@pytest.mark.parametrize(("env", "seconds", "reason"), HELD.values(), ids=HELD)
def test_a_postponed_change_has_a_reason(env, seconds, reason):
    env = deepcopy(env)
    env.run(seconds)

    assert reason in env.said("pod")


def test_the_factor_rises_while_only_limits_throttle_and_falls_on_a_full_node():
    policy, node = MarketPolicy(), cpu_supply.NodeCPU(800)
    factor = cpu_supply.initial_factor(policy, 0)
    assert factor.thousandths == 4000

    def after(seconds: int, usage: int, wanting: bool) -> int:
        now = cpu_supply.initial_factor(policy, 0)
        for second in range(seconds):
            now = cpu_supply.adapt_factor(
                now, usage, node=node, wanting=wanting, policy=policy, now=(second + 1) * SECOND
            )
        return now.thousandths

    quiet, full = 2 * SECOND, 8 * SECOND
    assert after(60, quiet, wanting=False) == 4000
    assert after(10, quiet, wanting=True) == 4250
    assert after(3600, quiet, wanting=True) == 8000
    assert after(10, full, wanting=True) == 3500
    assert after(3600, full, wanting=True) == 2000


BOOKS = [(MarketPolicy(), {"latency": 3200, "elastic": 720}), (STRICT, {"strict": 800})]


@pytest.mark.parametrize(("policy", "supplies"), BOOKS, ids=["two books", "strict"])
def test_an_empty_node_has_nothing_to_decide(policy, supplies):
    done = ticking.tick(MarketEnv().state, MarketEnv().observe(), policy, 0)

    assert done.decisions == ()
    assert {name: book.supply for name, book in done.books.items()} == supplies


def test_an_unwritten_decrease_frees_nothing():
    """600 was written and 100 is applied; the decrease is decided, but the API server refuses it."""
    slow = MarketTestPod("slow", wants=5, limit=100, desired=600, annotations=ELASTIC)
    busy = MarketTestPod("busy", wants=700, limit=100, annotations=ELASTIC)
    env = MarketEnv(slow, busy, policy=replace(STRICT, elastic_peaks=0), lag=10_000)
    env.refused = {"slow"}
    env.run(90)

    assert env.last is not None
    assert [move.limit for move in moves(env.last.decisions)] == [300], "the decrease is decided again"
    assert held(env) <= 800


def test_a_pod_that_becomes_ineligible_keeps_its_limit():
    """In strict mode its limit still counts, although its annotations are invalid now."""
    given = MarketTestPod("given", wants=500, limit=600, desired=600, annotations={"weight": "heavy"})
    busy = MarketTestPod("busy", wants=700, limit=100)
    env = MarketEnv(given, busy, policy=STRICT)
    env.run(60)

    assert env.pods["busy"].limit == 200
    assert held(env) <= 800


def test_a_pod_whose_raise_is_not_applied_is_not_raised_again():
    """A quota of its namespace may prevent the raise; otherwise it would be promised the whole supply."""
    busy = MarketTestPod("busy", wants=700, limit=100)
    env = MarketEnv(busy, policy=STRICT, lag=10_000)
    env.run(120)

    assert [limit for _, limit in env.moved("busy")] == [200]
    assert "its last desired limit is not applied yet" in env.said("busy")
