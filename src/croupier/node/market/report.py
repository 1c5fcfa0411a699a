"""The report of a tick: the supply, the price, and the limit of each pod with the reason."""

from collections.abc import Mapping

from msgspec import structs

from croupier.api.market_report import MarketPodLine, MarketReport, SupplyLine
from croupier.core.market import terms, units
from croupier.core.market.clearing import Clearing
from croupier.core.market.model import (
    KeepLimit,
    MarketDecision,
    MarketPod,
    NodeObservation,
    NotManaged,
    PodRecord,
    SetLimit,
    TickResult,
)
from croupier.core.market.policy import MarketPolicy
from croupier.core.market.terms import MarketTerms


def build(
    node: str, seen: NodeObservation, done: TickResult, policy: MarketPolicy, *, dry_run: bool
) -> MarketReport:
    pods = {pod.uid: pod for pod in seen.pods}
    factor = done.state.factor
    return MarketReport(
        node=node,
        capacity=units.text(seen.node.capacity),
        strict=policy.strict,
        dry_run=dry_run,
        factor=1.0 if policy.strict or factor is None else factor.thousandths / 1000,
        outside=_millis(seen.node.other_usage),
        books=tuple(_book(name, book) for name, book in done.books.items()),
        pods=tuple(
            _pod(
                decision,
                pods[decision.uid],
                record=done.state.records.get(decision.uid),
                seen=seen,
                policy=policy,
            )
            for decision in done.decisions
        ),
    )


def _book(name: str, book: Clearing) -> SupplyLine:
    return SupplyLine(
        name=name,
        supply=units.text(book.supply),
        given=units.text(sum(share.amount for share in book.shares)),
        left=units.text(max(0, book.left)),
        short=units.text(book.short),
        price=float(round(book.price, 6)),
    )


def _pod(
    decision: MarketDecision,
    pod: MarketPod,
    *,
    record: PodRecord | None,
    seen: NodeObservation,
    policy: MarketPolicy,
) -> MarketPodLine:
    allowed = terms.read(pod.shape, capacity=seen.node.capacity, protected=policy.protected)
    estimates = list(record.estimates.values()) if record is not None else []
    limit, target = _limits(decision, pod)
    return MarketPodLine(
        pod=decision.key,
        book=_book_of(allowed, policy),
        limit=units.text(limit),
        applied="" if pod.applied is None else units.text(pod.applied),
        target=units.text(target),
        original=units.text(pod.shape.original),
        usage=_millis(sum(estimate.usage for estimate in estimates)),
        demand=_millis(sum(estimate.demand for estimate in estimates)),
        throttled_percent=max((estimate.throttling for estimate in estimates), default=0) / 10,
        moves=isinstance(decision, SetLimit),
        why=decision.sentence,
    )


def _book_of(allowed: object, policy: MarketPolicy) -> str:
    if not isinstance(allowed, MarketTerms):
        return ""
    return "strict" if policy.strict else allowed.book


def _limits(decision: MarketDecision, pod: MarketPod) -> tuple[int, int]:
    match decision:
        case SetLimit():
            return decision.limit, decision.limit
        case KeepLimit():
            return decision.limit, decision.target
        case NotManaged():
            return pod.limit, pod.limit


def _millis(micros: int) -> str:
    """Millionths of a CPU as a quantity."""
    return f"{-(-micros // 1000)}m" if micros else "0"


def with_reasons(report: MarketReport, sentences: Mapping[str, str]) -> MarketReport:
    """Replace the reasons of some pods, by key."""
    pods = tuple(
        structs.replace(line, why=sentences[line.pod]) if line.pod in sentences else line
        for line in report.pods
    )
    return structs.replace(report, pods=pods)
