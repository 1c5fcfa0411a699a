"""Whatever happens on a node, ticks keep their promises: these are the ones that hold at every moment."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.core.market import ticking
from croupier.core.market.policy import Policy
from croupier.core.market.seen import Decision, Move, Observation, Round, State
from croupier.core.market.units import SECOND
from tests.core.market_floor import STRICT, Floor, Guest, held, moves

CAPACITY = 400


@st.composite
def guests(draw: st.DrawFn) -> list[Guest]:
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
            Guest(f"pod-{number}", draw(st.integers(0, 300)), request, limit, annotations=annotations)
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


def happen(floor: Floor, change: tuple[str, int, int]) -> None:
    what, who, amount = change
    names = sorted(floor.guests)
    guest = floor.guests[names[who % len(names)]]
    match what:
        case "want":
            guest.wants = amount
        case "blind" | "see":
            guest.readable = what == "see"
        case "forget":
            floor.restart_agent()
        case "lag":
            floor.lag = 1 + amount % 20
        case "mute":
            floor.writes = not floor.writes
        case _:
            floor.run(amount % 70)
    floor.run(3)


@dataclass(frozen=True)
class Moment:
    """A tick: what was known and held before it, what it saw, what came out."""

    state: State
    held: int
    seen: Observation
    done: Round


def play(floor: Floor, story: list[tuple[str, int, int]], check: Callable[[Moment], None]) -> None:
    """The story, with `check` after every tick."""
    tick, observe, seen = floor.tick, floor.observe, []

    def observed() -> Observation:
        seen.append(observe())
        return seen[-1]

    def ticked() -> Round:
        state, before = floor.state, held(floor)
        done = tick()
        check(Moment(state, before, seen[-1], done))
        return done

    floor.observe = observed  # type: ignore[method-assign]  # every look shall be kept
    floor.tick = ticked  # type: ignore[method-assign]  # every tick shall be checked
    for change in story:
        happen(floor, change)


def made_now(one: Decision, floor: Floor, moment: Moment) -> bool:
    """Decided at this tick, not repeated."""
    if not isinstance(one, Move):
        return False
    order = moment.done.state.records[one.uid].order
    return order is not None and order.at == floor.now


@settings(max_examples=40)
@given(guests(), changes, st.booleans())
def test_a_tick_twice_is_a_tick_once(crowd, story, strict):
    """Idempotence: a second tick on what was seen, at the same moment, changes neither state nor moves."""
    floor = Floor(*crowd, capacity=CAPACITY, policy=STRICT if strict else Policy())

    def check(moment: Moment) -> None:
        again = ticking.tick(moment.done.state, moment.seen, floor.policy, floor.now)
        assert again.state == moment.done.state
        was = {one.uid: one.limit for one in moves(moment.done.decisions)}
        assert {one.uid: one.limit for one in moves(again.decisions)} == was

    play(floor, story, check)


@settings(max_examples=40)
@given(guests(), changes)
def test_in_strict_mode_what_is_held_never_grows_beyond_the_supply(crowd, story):
    """The sum of max(desired, applied) stays within the supply at all times.

    Pods may come with more than that; then no tick makes it more.
    """
    floor = Floor(*crowd, capacity=CAPACITY, policy=STRICT)

    def check(moment: Moment) -> None:
        assert held(floor) <= max(CAPACITY, moment.held)

    play(floor, story, check)


@settings(max_examples=40)
@given(guests(), changes, st.booleans())
def test_no_move_breaks_a_bound_or_a_cool_down(crowd, story, strict):
    """Floors, caps, at most double, at least half; 10 s before a raise and 60 s before a fall."""
    floor = Floor(*crowd, capacity=CAPACITY, policy=STRICT if strict else Policy())

    def check(moment: Moment) -> None:
        for one in moment.done.decisions:
            if not isinstance(one, Move) or not made_now(one, floor, moment):
                continue
            guest = floor.guests[one.key.removeprefix("team/")]
            assert guest.request <= one.limit <= max(CAPACITY, guest.original)
            assert one.before / 2 <= one.limit <= 2 * one.before
            known = moment.state.records.get(one.uid)
            assert known is not None, "nobody is moved at first sight"
            pause = 10 if one.limit > one.before else 60
            assert known.history.moved is None or floor.now - known.history.moved >= pause * SECOND
            assert one.limit > one.before or floor.now - known.history.started >= 60 * SECOND

    play(floor, story, check)


@settings(max_examples=25)
@given(guests(), st.randoms(use_true_random=False))
def test_the_order_in_which_pods_are_seen_does_not_matter(crowd, dice):
    floor = Floor(*crowd, capacity=CAPACITY)
    floor.run(5)
    seen = floor.observe()
    mixed = replace(seen, pods=tuple(dice.sample(seen.pods, len(seen.pods))))

    once = ticking.tick(floor.state, seen, floor.policy, floor.now)
    other = ticking.tick(floor.state, mixed, floor.policy, floor.now)
    assert once == other


@settings(max_examples=25)
@given(guests(), changes)
def test_who_is_paused_never_moves(crowd, story):
    floor = Floor(*crowd, capacity=CAPACITY)

    def check(moment: Moment) -> None:
        for one in moves(moment.done.decisions):
            assert "paused" not in floor.guests[one.key.removeprefix("team/")].annotations

    play(floor, story, check)
