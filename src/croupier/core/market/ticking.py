"""One tick of a node's market: from what is seen and remembered to what should be written, and why.

A tick decides levels, not steps: what was decided is repeated until it is seen written, and a tick that is
run twice on the same observation changes nothing the second time.
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
    """Times are microseconds of a clock that never goes back."""
    everyone = standing.of_all(state, seen, policy, now)
    factor = _factor(state, seen, everyone, policy=policy, now=now)
    opened = _strict(seen, everyone, policy) if policy.strict else _two(seen, everyone, factor, policy)

    tokens, decided = state.tokens, {}
    for book in opened:
        moved = moving.settle(book.cleared, book.bidders, policy=policy, tokens=tokens, now=now)
        tokens = moved.tokens
        for one, share in zip(book.bidders, book.cleared.shares, strict=True):
            decided[one.pod.uid] = _decided(one, share, book=book, moved=moved, policy=policy, now=now)

    records = {one.pod.uid: decided.get(one.pod.uid, (one.record, None))[0] for one in everyone}
    decisions = tuple(found[1] if (found := decided.get(one.pod.uid)) else _outside(one) for one in everyone)
    return Round(State(records, factor, tokens), decisions, {book.name: book.cleared for book in opened})


def _factor(
    state: State, seen: Observation, everyone: Sequence[Standing], *, policy: Policy, now: int
) -> Factor:
    factor = state.factor or books.begin(policy, now)
    latency = [one for one in everyone if _in(one, "latency")]
    wanted = sum(max(one.bid().want, one.held) for one in latency)
    wanting = wanted > books.latency_supply(seen.node, factor)
    usage = seen.node.other_usage + sum(one.usage for one in everyone)
    return books.adapt(factor, usage, node=seen.node, wanting=wanting, policy=policy, now=now)


def _in(one: Standing, book: str) -> bool:
    return one.trades and isinstance(one.terms, Terms) and one.terms.book == book


def _strict(seen: Observation, everyone: Sequence[Standing], policy: Policy) -> list[_Book]:
    bidders = [one for one in everyone if one.trades]
    outside = sum(one.others_claim for one in everyone if not one.trades)
    return [_opened("strict", bidders, max(0, books.strict_supply(seen.node, policy) - outside))]


def _two(seen: Observation, everyone: Sequence[Standing], factor: Factor, policy: Policy) -> list[_Book]:
    latency = [one for one in everyone if _in(one, "latency")]
    elastic = [one for one in everyone if _in(one, "elastic")]
    outside = sum(one.others_usage for one in everyone if not one.trades)
    used = outside + sum(one.usage for one in latency)
    supply = books.elastic_supply(seen.node, used, policy) + sum(one.idle_floor for one in elastic)
    return [
        _opened("latency", latency, books.latency_supply(seen.node, factor)),
        _opened("elastic", elastic, supply),
    ]


def _opened(name: str, bidders: Sequence[Standing], supply: int) -> _Book:
    return _Book(name, bidders, clearing.clear([one.bid() for one in bidders], supply))


def _decided(
    one: Standing, share: Share, *, book: _Book, moved: Moved, policy: Policy, now: int
) -> tuple[Record, Decision]:
    limit = moved.limits.get(one.pod.key)
    if limit is not None:
        sentence = f"{churn.words(one.current, limit)}: {_because(one, share, book)}"
        spent = churn.take(one.record.history.tokens, policy.churn.pod, now)
        history = replace(one.record.history, moved=now, tokens=spent)
        record = replace(one.record, history=history, order=Order(limit, now, sentence))
        return record, Move(one.pod.key, one.pod.uid, one.current, limit, sentence)
    if (order := one.record.order) is not None:
        before = one.pod.desired if one.pod.desired is not None else one.pod.limit
        return one.record, Move(one.pod.key, one.pod.uid, before, order.limit, order.sentence)
    return one.record, _kept(one, share, book, moved.held)


def _kept(one: Standing, share: Share, book: _Book, held: Mapping[str, str]) -> Keep:
    sentence = f"stays at {units.text(one.current)}: {_because(one, share, book)}"
    if reason := held.get(one.pod.key):
        sentence += f"; it should have {units.text(share.amount)}, but {reason}"
    return Keep(one.pod.key, one.pod.uid, one.current, share.amount, sentence)


def _because(one: Standing, share: Share, book: _Book) -> str:
    asks = f"with headroom it asks for {units.text(one.ask)}"
    if one.throttled:
        worst = max(estimate.throttling for estimate in one.record.estimates.values())
        asks += f" and is throttled in {-(-worst // 10)} % of its periods"
    match share.why:
        case "share":
            bought, supply = units.text(share.amount), units.text(book.cleared.supply)
            return f"{asks}, and its weight buys {bought} of the {supply} for sale"
        case "floor":
            return f"{asks}, and {units.text(share.amount)} is the least it may have"
        case "cap":
            return f"{asks}, and {units.text(share.amount)} is the most it may have"
        case "slack":
            return f"{asks}, and nobody else needs what it has above that"
        case "demand":
            return asks


def _outside(one: Standing) -> Decision:
    if isinstance(one.terms, Unfit):
        return Alone(one.pod.key, one.pod.uid, one.terms.word, one.terms.sentence)
    reason = (
        "it is paused by its owner"
        if one.terms.paused
        else "its CPU counters could not be read yet, or for too long"
    )
    return Keep(
        one.pod.key, one.pod.uid, one.current, one.current, f"stays at {units.text(one.current)}: {reason}"
    )
