"""Usage is counted exactly, whatever is interrupted, repeated, delayed or counted in between."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.api import usage_records
from croupier.core.ledger.ledger import Ledger
from croupier.core.usage import holdings as holding
from croupier.core.usage import report
from croupier.core.usage.account import HOUR, LATEST, NodeHoldings, UsageAccount
from croupier.core.usage.holdings import CardProduct, UsageKey
from tests.core import ledger_builders as build
from tests.core.usage import judge
from tests.core.usage.judge import Revision

START = 480_000 * HOUR
"""A full hour."""
TEAM = UsageKey("team-a", "training", "H100", "Percent")
OTHER = UsageKey("team-b", "training", "H100", "Percent")
NODES = ("node-1", "node-2")


def held(generation: int = 1, **shares: str) -> NodeHoldings:
    """`held(pod="1/4")`: what pods of team-a hold."""
    pods = {pod: Fraction(share) for pod, share in shares.items()}
    return NodeHoldings(generation, {TEAM: pods} if pods else {})


def counted(account: UsageAccount) -> dict[tuple[int, UsageKey], Fraction]:
    return {
        (hour, key): usage.card_seconds
        for hour, by_key in account.hours.items()
        for key, usage in by_key.items()
        if usage.card_seconds
    }


CASES = {
    "a quarter for four hours is one card-hour": (
        [(0, held(a="1/4")), (4 * HOUR, held())],
        {0: 900, 1: 900, 2: 900, 3: 900},
    ),
    "two pods": ([(0, held(a="1/2")), (60, held(a="1/2", b="1/4")), (120, held())], {0: 75}),
    "over the end of an hour": ([(3590, held(a="1")), (3620, held())], {0: 10, 1: 20}),
    "a share that changes": ([(0, held(a="1/2")), (100, held(a="1")), (200, held())], {0: 150}),
    "still held": ([(7200, held(a="1"))], {2: 3600, 3: 3600}),
}


@pytest.mark.parametrize(("changes", "expected"), CASES.values(), ids=CASES)
def test_card_seconds_by_hour(changes, expected):
    account = UsageAccount(START, START)
    for at, state in changes:
        account.observe("node-1", state, START + at)
    account.advance(START + 4 * HOUR)

    assert counted(account) == {(START // HOUR + hour, TEAM): seconds for hour, seconds in expected.items()}
    assert account.totals[TEAM].card_seconds == sum(expected.values())


def test_a_change_that_is_seen_late_corrects_what_was_counted():
    account = UsageAccount(START, START)
    account.observe("node-1", held(a="1"), START)
    account.advance(START + 60)
    account.observe("node-1", held(), START + 50)

    assert counted(account) == {(START // HOUR, TEAM): 50}


def test_nothing_is_counted_from_before_the_start():
    account = UsageAccount(START, START)
    account.relist({"node-1": (held(40, a="1"), START - 7 * HOUR)})
    account.advance(START + 10)

    assert counted(account) == {(START // HOUR, TEAM): 10}


MISSED = {
    "one write: exact": (held(2), 100),
    "more writes: a share that ended counts until the last record": (held(3), 60),
    "more writes: a share that stayed counts throughout": (held(5, a="1"), 200),
    "more writes: a share that began counts from the last write": (held(5, b="1"), 60 + 100),
    "the ledger is in memory: as if writes were missed": (held(0, b="1"), 60 + 100),
}


@pytest.mark.parametrize(("now", "seconds"), MISSED.values(), ids=MISSED)
def test_missed_writes(now, seconds):
    account = UsageAccount(START, START)
    account.observe("node-1", held(1, a="1"), START)
    account.advance(START + 60)
    account.relist({"node-1": (now, START + 100)})
    account.advance(START + 200)

    assert account.totals[TEAM].card_seconds == seconds


def test_missed_writes_of_one_node_do_not_depend_on_others():
    account = UsageAccount(START, START)
    account.observe("node-1", held(1, a="1"), START)
    account.advance(START + 60)
    account.relist({"node-0": (held(9, b="1"), START + 150), "node-1": (held(9), START + 100)})
    account.advance(START + 200)

    assert account.totals[TEAM].card_seconds == 60 + 50


def test_a_ledger_that_was_deleted_unseen_counts_until_the_last_record():
    account = UsageAccount(START, START)
    account.observe("node-1", held(a="1"), START)
    account.observe("node-2", held(b="1"), START)
    account.advance(START + 60)
    account.relist({"node-2": (held(b="1"), START)})
    account.advance(START + 100)

    assert account.totals[TEAM].card_seconds == 60 + 100
    assert account.nodes.keys() == {"node-2"}


def test_pods_are_counted_once_in_any_time():
    account = UsageAccount(START, START)
    account.observe("node-1", held(early="1/4", long="1/4"), START)
    account.observe("node-1", held(long="1/4"), START + 20)
    account.observe("node-1", held(long="1/4", late="1/4"), START + 2 * HOUR + 10)
    account.advance(START + 3 * HOUR)
    first = START // HOUR

    def holders(since: int, until: int) -> int:
        return report.total(report.rows(account.hours, ("pool",), since=since, until=until)).holders

    assert holders(first, first + 3) == 3
    assert holders(first + 1, first + 2) == 1
    assert holders(first + 1, first + 3) == 2


def test_old_hours_and_totals_are_forgotten():
    account = UsageAccount(START, START)
    account.observe("node-1", held(a="1"), START)
    account.observe("node-1", NodeHoldings(1, {OTHER: {"b": Fraction(1)}}), START + HOUR)
    account.advance(START + 3 * HOUR)
    account.forget_before(START // HOUR + 2)

    assert counted(account) == {(START // HOUR + 2, OTHER): HOUR}
    assert account.totals.keys() == {OTHER}


def test_shares_of_each_mode():
    ledger = Ledger(
        "node-1",
        (
            build.shared(0, 25, pool="percent"),
            build.exclusive(1, taken=True),
            build.time_sliced(2, 3, slices=4),
            build.mig(3, "mixed", taken=(0, 4)),
        ),
    )
    found = holding.holdings(ledger, {build.card_id(3): CardProduct("A100")})
    shares = {(key.pool, key.model, key.mode): sorted(pods.values()) for key, pods in found.items()}

    assert shares == {
        ("percent", "", "Percent"): [Fraction(1, 4)],
        ("", "", "Exclusive"): [1],
        ("", "", "TimeSlice"): [Fraction(3, 4)],
        ("", "A100", "MIG"): [Fraction(1, 7), Fraction(3, 7)],
    }
    assert {key.namespace for key in found} == {"other"}


def test_a_pod_that_takes_over_its_reservation_is_the_same_pod():
    assert holding.pod_id("team-a/train") == holding.pod_id("team-a/train/3f2c")
    assert holding.pod_id("team-a/train") != holding.pod_id("team-b/train")


@dataclass(frozen=True)
class Step:
    """What happens to the recorder between two revisions."""

    advance: int = 0
    """Count up to so many seconds after the last revision."""
    save: bool = False
    crash: bool = False
    repeat: bool = False


SHARES = st.sampled_from([Fraction(1), Fraction(1, 4), Fraction(1, 3), Fraction(3, 7)])
PLACES = st.tuples(st.sampled_from("abc"), st.sampled_from([TEAM, OTHER]))
STEPS = st.builds(Step, st.integers(0, LATEST), st.booleans(), st.booleans(), st.booleans())


@st.composite
def histories(draw: st.DrawFn) -> list[Revision]:
    at, revisions = START, []
    for _ in range(draw(st.integers(1, 10))):
        at += draw(st.integers(0, 3000))
        held = draw(st.dictionaries(PLACES, SHARES, max_size=4))
        revisions.append(Revision(draw(st.sampled_from(NODES)), at, held))
    return revisions


def state_of(revisions: Sequence[Revision], number: int) -> NodeHoldings:
    revision = revisions[number]
    found: dict[UsageKey, dict[str, Fraction]] = {}
    for (pod, key), share in revision.held.items():
        found.setdefault(key, {})[pod] = share
    return NodeHoldings(sum(other.node == revision.node for other in revisions[: number + 1]), found)


def saved(account: UsageAccount) -> UsageAccount:
    """The account after it was written and read again."""
    return usage_records.decode_account({"binaryData": usage_records.encode_account(account)})


def play(revisions: Sequence[Revision], steps: Sequence[Step]) -> UsageAccount:
    """Deliver every revision to a recorder that counts, saves, crashes and repeats as `steps` say.

    After a crash it continues from its last record, as the watch of another process would.
    """
    account = UsageAccount(START, START, version="0")
    record, schedule = saved(account), list(steps)
    while int(account.version) < len(revisions):
        number = int(account.version)
        deliver(account, revisions, number)
        step = schedule.pop() if schedule else Step()
        if step.repeat:
            deliver(account, revisions, number)
        if step.advance:
            account.advance(revisions[number].at + step.advance)
        if step.save:
            record = saved(account)
        if step.crash:
            account = saved(record)
    return account


def deliver(account: UsageAccount, revisions: Sequence[Revision], number: int) -> None:
    account.observe(revisions[number].node, state_of(revisions, number), revisions[number].at)
    account.version = str(number + 1)


@given(histories(), st.lists(STEPS, max_size=15))
def test_any_interruption_and_repetition_gives_the_figures_of_the_judge(revisions, steps):
    account, until = play(revisions, steps), revisions[-1].at + 100
    account.advance(until)

    assert counted(account) == judge.recount(revisions, until)
    first = START // HOUR + 1
    rows = report.rows(account.hours, ("namespace",), since=first, until=until // HOUR + 1)
    expected = judge.holders(revisions, first, until)
    assert {row.group[0]: row.holders for row in rows if row.holders} == {
        key.namespace: number for key, number in expected.items()
    }


@given(histories(), st.data())
def test_missed_writes_cost_at_most_the_missed_time(revisions, data):
    known = data.draw(st.integers(0, len(revisions) - 1))
    account = saved(play(revisions[:known], []))
    recorded = account.until
    last = {revision.node: number for number, revision in enumerate(revisions)}
    account.relist({node: (state_of(revisions, n), revisions[n].at) for node, n in last.items()})
    until = revisions[-1].at + 100
    account.advance(until)

    true = judge.recount(revisions, until)
    for key in (TEAM, OTHER):
        most = sum(max(share_of(revision, key, node) for revision in revisions) for node in NODES)
        exact = sum(amount for (_, other), amount in true.items() if other == key)
        found = account.totals[key].card_seconds if key in account.totals else 0
        assert abs(found - exact) <= most * (revisions[-1].at - recorded)


def share_of(revision: Revision, key: UsageKey, node: str) -> Fraction:
    held = (share for (_, other), share in revision.held.items() if other == key)
    return sum(held, Fraction()) if revision.node == node else Fraction()


def test_the_size_of_the_records():
    """200 namespaces in 4 pools, 3,200 pods on 400 nodes, and shares that change every hour."""
    account = UsageAccount(START, START)
    keys = [
        UsageKey(f"department-{n:03}-team", f"pool-{p}", "NVIDIA-H100-80GB-HBM3", "Percent")
        for n in range(200)
        for p in range(4)
    ]
    for hour in range(30):
        for node in range(400):
            pods = {
                key: {
                    holding.pod_id(f"{key}/{n}"): Fraction((node * 7 + hour * 3 + n) % 10 + 1, 40)
                    for n in range(4)
                }
                for key in keys[2 * node : 2 * node + 2]
            }
            at = START + hour * HOUR + (node // 40 * 97 + hour * 389) % HOUR
            account.observe(f"gpu-node-{node}.example.com", NodeHoldings(hour + 1, pods), at)
    account.advance(START + 30 * HOUR)
    whole = usage_records.encode_account(account)
    day = usage_records.with_day(None, START // HOUR // 24, account.hours)

    assert saved(account) == account
    assert sum(map(len, whole.values())) < 300_000
    assert sum(map(len, day.values())) < 200_000
    assert usage_records.SLOT_DAYS * 200_000 < 1024 * 1024, "a ConfigMap has at most 1 MiB"
