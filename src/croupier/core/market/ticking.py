"""One tick of a node's market: from the observation and the state to the limits to write, and why.

A tick is level-triggered: a decision is repeated until its write is observed, and a second tick on the same
observation changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from croupier.core.market import actuation, churn, clearing, cpu_supply, pod_state, units
from croupier.core.market.actuation import ActuationResult
from croupier.core.market.clearing import Clearing, Share
from croupier.core.market.cpu_supply import OvercommitFactor
from croupier.core.market.model import (
    KeepLimit,
    MarketDecision,
    MarketState,
    NodeObservation,
    NotManaged,
    PendingWrite,
    PodRecord,
    SetLimit,
    TickResult,
)
from croupier.core.market.pod_state import PodState
from croupier.core.market.policy import MarketPolicy
from croupier.core.market.terms import MarketTerms
from croupier.core.model.reason import Reason


@dataclass(frozen=True, slots=True)
class _ClearedBook:
    name: str
    bidders: Sequence[PodState]
    cleared: Clearing


def tick(state: MarketState, seen: NodeObservation, policy: MarketPolicy, now: int) -> TickResult:
    """Times are microseconds of a monotonic clock."""
    entries = pod_state.pod_states(state, seen, policy, now)
    factor = _factor(state, seen, entries, policy=policy, now=now)
    opened = (
        _strict_book(seen, entries, policy) if policy.strict else _two_books(seen, entries, factor, policy)
    )

    tokens, decided = state.tokens, {}
    for book in opened:
        moved = actuation.actuate(book.cleared, book.bidders, policy=policy, tokens=tokens, now=now)
        tokens = moved.tokens
        for entry, share in zip(book.bidders, book.cleared.shares, strict=True):
            decided[entry.pod.uid] = _decided(entry, share, book=book, moved=moved, policy=policy, now=now)

    records = {entry.pod.uid: decided.get(entry.pod.uid, (entry.record, None))[0] for entry in entries}
    decisions = tuple(
        pair[1] if (pair := decided.get(entry.pod.uid)) else _not_participating(entry) for entry in entries
    )
    return TickResult(
        MarketState(records, factor, tokens), decisions, {book.name: book.cleared for book in opened}
    )


def _factor(
    state: MarketState, seen: NodeObservation, entries: Sequence[PodState], *, policy: MarketPolicy, now: int
) -> OvercommitFactor:
    factor = state.factor or cpu_supply.initial_factor(policy, now)
    latency = [entry for entry in entries if _in_book(entry, "latency")]
    wanted = sum(max(entry.bid().want, entry.held) for entry in latency)
    wanting = wanted > cpu_supply.latency_supply(seen.node, factor)
    usage = seen.node.other_usage + sum(entry.usage for entry in entries)
    return cpu_supply.adapt_factor(factor, usage, node=seen.node, wanting=wanting, policy=policy, now=now)


def _in_book(entry: PodState, book: str) -> bool:
    return entry.participates and isinstance(entry.terms, MarketTerms) and entry.terms.book == book


def _strict_book(
    seen: NodeObservation, entries: Sequence[PodState], policy: MarketPolicy
) -> list[_ClearedBook]:
    bidders = [entry for entry in entries if entry.participates]
    outside = sum(entry.others_claim for entry in entries if not entry.participates)
    return [_cleared_book("strict", bidders, max(0, cpu_supply.strict_supply(seen.node, policy) - outside))]


def _two_books(
    seen: NodeObservation, entries: Sequence[PodState], factor: OvercommitFactor, policy: MarketPolicy
) -> list[_ClearedBook]:
    latency = [entry for entry in entries if _in_book(entry, "latency")]
    elastic = [entry for entry in entries if _in_book(entry, "elastic")]
    outside = sum(entry.others_usage for entry in entries if not entry.participates)
    used = outside + sum(entry.usage for entry in latency)
    supply = cpu_supply.elastic_supply(seen.node, used, policy) + sum(entry.idle_floor for entry in elastic)
    return [
        _cleared_book("latency", latency, cpu_supply.latency_supply(seen.node, factor)),
        _cleared_book("elastic", elastic, supply),
    ]


def _cleared_book(name: str, bidders: Sequence[PodState], supply: int) -> _ClearedBook:
    return _ClearedBook(name, bidders, clearing.clear([entry.bid() for entry in bidders], supply))


def _decided(
    entry: PodState,
    share: Share,
    *,
    book: _ClearedBook,
    moved: ActuationResult,
    policy: MarketPolicy,
    now: int,
) -> tuple[PodRecord, MarketDecision]:
    limit = moved.limits.get(entry.pod.key)
    if limit is not None:
        sentence = f"{churn.describe_change(entry.current, limit)}: {_reason(entry, share, book)}"
        spent = churn.take_token(entry.record.history.tokens, policy.churn.pod, now)
        history = replace(entry.record.history, moved=now, tokens=spent)
        record = replace(entry.record, history=history, pending_write=PendingWrite(limit, now, sentence))
        return record, SetLimit(entry.pod.key, entry.pod.uid, entry.current, limit, sentence)
    if (order := entry.record.pending_write) is not None:
        before = entry.pod.desired if entry.pod.desired is not None else entry.pod.limit
        return entry.record, SetLimit(entry.pod.key, entry.pod.uid, before, order.limit, order.sentence)
    return entry.record, _keep_limit(entry, share, book, moved.held)


def _keep_limit(entry: PodState, share: Share, book: _ClearedBook, held: Mapping[str, str]) -> KeepLimit:
    sentence = f"stays at {units.text(entry.current)}: {_reason(entry, share, book)}"
    if reason := held.get(entry.pod.key):
        sentence += f"; its target is {units.text(share.amount)}, but {reason}"
    return KeepLimit(entry.pod.key, entry.pod.uid, entry.current, share.amount, sentence)


def _reason(entry: PodState, share: Share, book: _ClearedBook) -> str:
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


def _not_participating(entry: PodState) -> MarketDecision:
    if isinstance(entry.terms, Reason):
        return NotManaged(entry.pod.key, entry.pod.uid, str(entry.terms))
    reason = (
        "it is paused by its owner"
        if entry.terms.paused
        else "its CPU counters have not been read yet or are too old"
    )
    sentence = f"stays at {units.text(entry.current)}: {reason}"
    return KeepLimit(entry.pod.key, entry.pod.uid, entry.current, entry.current, sentence)
