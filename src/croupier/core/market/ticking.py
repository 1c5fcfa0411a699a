"""One tick of a node's market: from the observation and the state to the limits to write, and why.

A tick is level-triggered: a decision is repeated until its write is observed, and a second tick on the same
observation changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from croupier.core.market import books, churn, clearing, moving, standing, units
from croupier.core.market.books import Factor
from croupier.core.market.clearing import Clearing, Share
from croupier.core.market.moving import Moved
from croupier.core.market.policy import Policy
from croupier.core.market.seen import Alone, Decision, Keep, Move, Observation, Order, Record, Round, State
from croupier.core.market.standing import Standing
from croupier.core.market.terms import Terms, Unfit


@dataclass(frozen=True, slots=True)
class _Book:
    name: str
    bidders: Sequence[Standing]
    cleared: Clearing


def tick(state: State, seen: Observation, policy: Policy, now: int) -> Round:
    """Times are microseconds of a monotonic clock."""
    entries = standing.of_all(state, seen, policy, now)
    factor = _factor(state, seen, entries, policy=policy, now=now)
    opened = _strict(seen, entries, policy) if policy.strict else _two(seen, entries, factor, policy)

    tokens, decided = state.tokens, {}
    for book in opened:
        moved = moving.settle(book.cleared, book.bidders, policy=policy, tokens=tokens, now=now)
        tokens = moved.tokens
        for entry, share in zip(book.bidders, book.cleared.shares, strict=True):
            decided[entry.pod.uid] = _decided(entry, share, book=book, moved=moved, policy=policy, now=now)

    records = {entry.pod.uid: decided.get(entry.pod.uid, (entry.record, None))[0] for entry in entries}
    decisions = tuple(
        pair[1] if (pair := decided.get(entry.pod.uid)) else _outside(entry) for entry in entries
    )
    return Round(State(records, factor, tokens), decisions, {book.name: book.cleared for book in opened})


def _factor(
    state: State, seen: Observation, entries: Sequence[Standing], *, policy: Policy, now: int
) -> Factor:
    factor = state.factor or books.begin(policy, now)
    latency = [entry for entry in entries if _in(entry, "latency")]
    wanted = sum(max(entry.bid().want, entry.held) for entry in latency)
    wanting = wanted > books.latency_supply(seen.node, factor)
    usage = seen.node.other_usage + sum(entry.usage for entry in entries)
    return books.adapt(factor, usage, node=seen.node, wanting=wanting, policy=policy, now=now)


def _in(entry: Standing, book: str) -> bool:
    return entry.trades and isinstance(entry.terms, Terms) and entry.terms.book == book


def _strict(seen: Observation, entries: Sequence[Standing], policy: Policy) -> list[_Book]:
    bidders = [entry for entry in entries if entry.trades]
    outside = sum(entry.others_claim for entry in entries if not entry.trades)
    return [_opened("strict", bidders, max(0, books.strict_supply(seen.node, policy) - outside))]


def _two(seen: Observation, entries: Sequence[Standing], factor: Factor, policy: Policy) -> list[_Book]:
    latency = [entry for entry in entries if _in(entry, "latency")]
    elastic = [entry for entry in entries if _in(entry, "elastic")]
    outside = sum(entry.others_usage for entry in entries if not entry.trades)
    used = outside + sum(entry.usage for entry in latency)
    supply = books.elastic_supply(seen.node, used, policy) + sum(entry.idle_floor for entry in elastic)
    return [
        _opened("latency", latency, books.latency_supply(seen.node, factor)),
        _opened("elastic", elastic, supply),
    ]


def _opened(name: str, bidders: Sequence[Standing], supply: int) -> _Book:
    return _Book(name, bidders, clearing.clear([entry.bid() for entry in bidders], supply))


def _decided(
    entry: Standing, share: Share, *, book: _Book, moved: Moved, policy: Policy, now: int
) -> tuple[Record, Decision]:
    limit = moved.limits.get(entry.pod.key)
    if limit is not None:
        sentence = f"{churn.words(entry.current, limit)}: {_because(entry, share, book)}"
        spent = churn.take(entry.record.history.tokens, policy.churn.pod, now)
        history = replace(entry.record.history, moved=now, tokens=spent)
        record = replace(entry.record, history=history, order=Order(limit, now, sentence))
        return record, Move(entry.pod.key, entry.pod.uid, entry.current, limit, sentence)
    if (order := entry.record.order) is not None:
        before = entry.pod.desired if entry.pod.desired is not None else entry.pod.limit
        return entry.record, Move(entry.pod.key, entry.pod.uid, before, order.limit, order.sentence)
    return entry.record, _kept(entry, share, book, moved.held)


def _kept(entry: Standing, share: Share, book: _Book, held: Mapping[str, str]) -> Keep:
    sentence = f"stays at {units.text(entry.current)}: {_because(entry, share, book)}"
    if reason := held.get(entry.pod.key):
        sentence += f"; its target is {units.text(share.amount)}, but {reason}"
    return Keep(entry.pod.key, entry.pod.uid, entry.current, share.amount, sentence)


def _because(entry: Standing, share: Share, book: _Book) -> str:
    asks = f"with headroom it needs {units.text(entry.ask)}"
    if entry.throttled:
        worst = max(estimate.throttling for estimate in entry.record.estimates.values())
        asks += f" and is throttled in {-(-worst // 10)} % of its periods"
    match share.why:
        case "share":
            amount, total = units.text(share.amount), units.text(book.cleared.supply)
            return f"{asks}, and the share of its weight is {amount} of the available {total}"
        case "floor":
            return f"{asks}, and its minimum is {units.text(share.amount)}"
        case "cap":
            return f"{asks}, and its maximum is {units.text(share.amount)}"
        case "slack":
            return f"{asks}, and no other pod needs the rest"
        case "demand":
            return asks


def _outside(entry: Standing) -> Decision:
    if isinstance(entry.terms, Unfit):
        return Alone(entry.pod.key, entry.pod.uid, entry.terms.word, entry.terms.sentence)
    reason = (
        "it is paused by its owner"
        if entry.terms.paused
        else "its CPU counters have not been read yet or are too old"
    )
    sentence = f"stays at {units.text(entry.current)}: {reason}"
    return Keep(entry.pod.key, entry.pod.uid, entry.current, entry.current, sentence)
