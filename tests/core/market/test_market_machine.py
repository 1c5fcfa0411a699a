"""Invariants of ticks for any sequence of events on a node."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.core.market import ticking
from croupier.core.market.model import MarketDecision, MarketState, NodeObservation, SetLimit, TickResult
from croupier.core.market.policy import MarketPolicy
from croupier.core.market.units import SECOND
from tests.core.market_env import STRICT, MarketEnv, MarketTestPod, held, moves

CAPACITY = 400


@st.composite
def market_pods(draw: st.DrawFn) -> list[MarketTestPod]:
    found = []
    for number in range(draw(st.integers(1, 5))):
        request = draw(st.integers(1, 40))
        annotations = {"class": draw(st.sampled_from(["latency", "elastic"]))}
        if draw(st.booleans()):
            annotations["weight"] = draw(st.sampled_from(["0.5", "2", "7"]))
        if draw(st.integers(0, 5)) == 0:
            annotations["paused"] = "true"
        limit = request + draw(st.integers(0, 60))
        found.append(
            MarketTestPod(f"pod-{number}", draw(st.integers(0, 300)), request, limit, annotations=annotations)
        )
    return found


changes = st.lists(
    st.tuples(
        st.sampled_from(["wait", "wait", "wait", "want", "want", "blind", "see", "forget", "lag", "mute"]),
        st.integers(0, 4),
        st.integers(0, 500),
    ),
    min_size=3,
    max_size=25,
)


def happen(env: MarketEnv, change: tuple[str, int, int]) -> None:
    what, who, amount = change
    names = sorted(env.pods)
    guest = env.pods[names[who % len(names)]]
    match what:
        case "want":
            guest.wants = amount
        case "blind" | "see":
            guest.readable = what == "see"
        case "forget":
            env.restart_agent()
        case "lag":
            env.lag = 1 + amount % 20
        case "mute":
            env.writes = not env.writes
        case _:
            env.run(amount % 70)
    env.run(3)


@dataclass(frozen=True)
class TickRecord:
    """A tick: the state and the held CPU before it, the observation, and the result."""

    state: MarketState
    held: int
    seen: NodeObservation
    done: TickResult


def play(env: MarketEnv, story: list[tuple[str, int, int]], check: Callable[[TickRecord], None]) -> None:
    """Play the events, with `check` after every tick."""
    tick, observe, seen = env.tick, env.observe, []

    def observed() -> NodeObservation:
        seen.append(observe())
        return seen[-1]

    def ticked() -> TickResult:
        state, before = env.state, held(env)
        done = tick()
        check(TickRecord(state, before, seen[-1], done))
        return done

    env.observe = observed  # type: ignore[method-assign]  # records every observation
    env.tick = ticked  # type: ignore[method-assign]  # checks every tick
    for change in story:
        happen(env, change)


def made_now(one: MarketDecision, env: MarketEnv, record: TickRecord) -> bool:
    """Whether it was decided at this tick and is not a repetition."""
    if not isinstance(one, SetLimit):
        return False
    order = record.done.state.records[one.uid].pending_write
    return order is not None and order.at == env.now


@settings(max_examples=40)
@given(market_pods(), changes, st.booleans())
def test_a_repeated_tick_changes_nothing(crowd, story, strict):
    """Idempotence: a second tick on the same observation at the same time changes nothing."""
    env = MarketEnv(*crowd, capacity=CAPACITY, policy=STRICT if strict else MarketPolicy())

    def check(record: TickRecord) -> None:
        again = ticking.tick(record.done.state, record.seen, env.policy, env.now)
        assert again.state == record.done.state
        was = {move.uid: move.limit for move in moves(record.done.decisions)}
        assert {move.uid: move.limit for move in moves(again.decisions)} == was

    play(env, story, check)


@settings(max_examples=40)
@given(market_pods(), changes)
def test_held_cpu_never_exceeds_the_supply_in_strict_mode(crowd, story):
    """The sum of max(desired, applied) stays within the supply at all times.

    Pods may start with more than that; then no tick increases the sum.
    """
    env = MarketEnv(*crowd, capacity=CAPACITY, policy=STRICT)

    def check(record: TickRecord) -> None:
        assert held(env) <= max(CAPACITY, record.held)

    play(env, story, check)


@settings(max_examples=40)
@given(market_pods(), changes, st.booleans())
def test_no_change_violates_a_bound_or_a_cool_down(crowd, story, strict):
    """Floors, caps, at most double, at least half; 10 s before a raise and 60 s before a decrease."""
    env = MarketEnv(*crowd, capacity=CAPACITY, policy=STRICT if strict else MarketPolicy())

    def check(record: TickRecord) -> None:
        for decision in record.done.decisions:
            if not isinstance(decision, SetLimit) or not made_now(decision, env, record):
                continue
            guest = env.pods[decision.key.removeprefix("team/")]
            assert guest.request <= decision.limit <= max(CAPACITY, guest.original)
            assert decision.before / 2 <= decision.limit <= 2 * decision.before
            known = record.state.records.get(decision.uid)
            assert known is not None, "a new pod is not changed at its first tick"
            pause = 10 if decision.limit > decision.before else 60
            assert known.history.moved is None or env.now - known.history.moved >= pause * SECOND
            assert decision.limit > decision.before or env.now - known.history.started >= 60 * SECOND

    play(env, story, check)


@settings(max_examples=25)
@given(market_pods(), st.randoms(use_true_random=False))
def test_the_order_of_the_observed_pods_does_not_matter(crowd, dice):
    env = MarketEnv(*crowd, capacity=CAPACITY)
    env.run(5)
    seen = env.observe()
    mixed = replace(seen, pods=tuple(dice.sample(seen.pods, len(seen.pods))))

    once = ticking.tick(env.state, seen, env.policy, env.now)
    other = ticking.tick(env.state, mixed, env.policy, env.now)
    assert once == other


@settings(max_examples=25)
@given(market_pods(), changes)
def test_a_paused_pod_is_never_changed(crowd, story):
    env = MarketEnv(*crowd, capacity=CAPACITY)

    def check(record: TickRecord) -> None:
        for move in moves(record.done.decisions):
            assert "paused" not in env.pods[move.key.removeprefix("team/")].annotations

    play(env, story, check)
