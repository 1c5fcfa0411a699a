"""The simulated node is fair, loses no work, and measures late work."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.market.units import CPU, MICROS, SECOND
from croupier_lab.simulator import plot, replay, synthetic, trace
from croupier_lab.simulator.kernel import SimulatedKernel, SimulatedPod
from croupier_lab.simulator.synthetic import SyntheticTraceOptions
from croupier_lab.simulator.trace import Trace, TraceWorkload

WEB = SimulatedPod("web", "latency", request=50, limit=100)
JOB = SimulatedPod("job", "elastic", request=50, limit=100)


def test_without_contention_only_the_limit_throttles():
    kernel = SimulatedKernel([WEB], capacity=400)
    busy = kernel.run({"web": 3 * SECOND}, {"web": 100})["web"]
    calm = kernel.run({"web": 0}, {"web": None})["web"]

    assert (busy.served, busy.throttled, busy.late) == (SECOND, True, 0)
    assert (calm.served, calm.throttled, calm.late) == (2 * SECOND, False, 2 * SECOND)
    sample = kernel.meters["web"].sample(2, 100)
    assert sample.usage == 3 * SECOND
    assert (sample.periods, sample.throttled_periods) == (20, 10)
    assert sample.throttled == 2 * SECOND, "three runnable threads and a limit of one CPU"


def test_a_full_node_shares_by_request_without_throttling():
    kernel = SimulatedKernel([WEB, SimulatedPod("big", "latency", request=150, limit=1000)], capacity=400)
    passed = kernel.run({"web": 9 * SECOND, "big": 9 * SECOND}, {"web": None, "big": None})

    assert {name: one.served for name, one in passed.items()} == {"web": SECOND, "big": 3 * SECOND}
    assert not any(one.throttled for one in passed.values())


def test_elastic_work_may_wait_a_minute():
    kernel = SimulatedKernel([JOB], capacity=400)
    kernel.run({"job": 100 * SECOND}, {"job": 100})
    late = [kernel.run({"job": 0}, {"job": 100})["job"].late for _ in range(99)]

    assert late[:60] == [0] * 60
    assert late[60:] == [SECOND] * 39


flows = st.lists(
    st.tuples(st.integers(0, 4 * SECOND), st.integers(0, 4 * SECOND), st.integers(1, 300)),
    min_size=1,
    max_size=20,
)


@given(flows, st.integers(1, 400))
def test_no_work_is_lost_and_the_capacity_is_respected(flow, capacity):
    kernel = SimulatedKernel([WEB, JOB], capacity)
    came = done = 0
    for web, job, limit in flow:
        passed = kernel.run({"web": web, "job": job}, {"web": limit, "job": None})
        came += web + job
        done += sum(one.served for one in passed.values())
        assert sum(one.served for one in passed.values()) <= capacity * MICROS
        assert passed["web"].served <= limit * MICROS
        assert came == done + sum(meter.waiting for meter in kernel.meters.values())


@pytest.fixture(scope="module")
def scores():
    played = trace.read(trace.to_csv(synthetic.rows(SyntheticTraceOptions(pods=6, minutes=12, seed=5))))
    return {score.name: score for score in replay.compare(played, replay.default_capacity(played))}


def test_the_policies_have_different_scores(scores):
    assert list(scores) == ["no limits", "static limits", "recommender", "market", "market, strict"]
    assert scores["no limits"].throttled == 0
    assert scores["no limits"].slack is None
    assert scores["static limits"].resizes == 0
    assert scores["recommender"].resizes > 0
    assert scores["market"].resizes > 0


def test_the_market_has_less_late_work_than_static_limits(scores):
    """On a trace of bursts, for which static limits are unsuitable."""
    assert scores["no limits"].late_latency <= scores["market"].late_latency
    assert scores["market"].late_latency < scores["static limits"].late_latency / 2


def test_minutes_sum_up_to_the_score(scores):
    for score in scores.values():
        assert sum(minute.seconds for minute in score.minutes) == score.seconds == 720
        total = sum(minute.resizes for minute in score.minutes)
        assert score.resizes == pytest.approx(3600 * total / (score.pods * score.seconds))


def test_plots_are_valid_svg(scores):
    drawn = plot.draw(list(scores.values()))

    assert set(drawn) == {"late", "throttling", "slack", "resizes"}
    for name, text in drawn.items():
        root = ET.fromstring(text)  # noqa: S314  our own drawing
        words = [str(one.text) for one in root.iter("{http://www.w3.org/2000/svg}text")]
        assert "market, strict" in words, name
        lines = root.findall("{http://www.w3.org/2000/svg}polyline")
        assert len(lines) == (4 if name == "slack" else 5), "there is no slack without limits"
        assert ("no limits" in words) == (name != "slack")
        assert [one for one in words if one in map(str, range(13))][-6:] == ["0", "2", "4", "6", "8", "10"]
        heights = [float(point.split(",")[1]) for line in lines for point in line.attrib["points"].split()]
        assert all(plot.TOP <= height <= plot.HEIGHT - plot.BOTTOM for height in heights), name


@given(st.floats(plot.MIN_VALUE, 1e9))
def test_an_axis_ends_slightly_above_the_largest_value(value):
    top = plot._round_up(value)

    assert value <= top <= 2.001 * value


def test_an_axis_without_values_has_a_length():
    assert plot._round_up(0.0) == plot._round_up(5e-324) == 1.0


def test_requests_fit_the_node_and_limits_are_not_below_them():
    greedy = Trace(2, tuple(TraceWorkload(f"w{n}", "latency", (5 * SECOND, 5 * SECOND)) for n in range(4)))
    settled = replay.pods_with_hindsight(greedy, capacity=10)

    assert sum(one.request for one in settled) <= 10 * CPU
    assert all(one.limit >= one.request >= 1 for one in settled)
