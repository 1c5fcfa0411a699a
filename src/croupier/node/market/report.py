"""The report of a tick: the supply, the price, and the limit of each pod with the reason."""

from collections.abc import Mapping

from msgspec import structs

from croupier.api.market_report import BookLine, PodLine, Report
from croupier.core.market import terms, units
from croupier.core.market.clearing import Clearing
from croupier.core.market.policy import Policy
from croupier.core.market.seen import Alone, Decision, Keep, Move, Observation, Pod, Record, Round
from croupier.core.market.terms import Terms


def of(node: str, seen: Observation, done: Round, policy: Policy, *, dry_run: bool) -> Report:
    pods = {pod.uid: pod for pod in seen.pods}
    factor = done.state.factor
    return Report(
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


def _book(name: str, book: Clearing) -> BookLine:
    return BookLine(
        name=name,
        supply=units.text(book.supply),
        given=units.text(sum(share.amount for share in book.shares)),
        left=units.text(max(0, book.left)),
        short=units.text(book.short),
        price=float(round(book.price, 6)),
    )


def _pod(
    decision: Decision, pod: Pod, *, record: Record | None, seen: Observation, policy: Policy
) -> PodLine:
    allowed = terms.read(pod.shape, capacity=seen.node.capacity, protected=policy.protected)
    estimates = list(record.estimates.values()) if record is not None else []
    limit, target = _limits(decision, pod)
    return PodLine(
        pod=decision.key,
        book=_book_of(allowed, policy),
        limit=units.text(limit),
        applied="" if pod.applied is None else units.text(pod.applied),
        target=units.text(target),
        original=units.text(pod.shape.original),
        usage=_millis(sum(estimate.usage for estimate in estimates)),
        demand=_millis(sum(estimate.demand for estimate in estimates)),
        throttled_percent=max((estimate.throttling for estimate in estimates), default=0) / 10,
        moves=isinstance(decision, Move),
        why=f"{decision.word}: {decision.sentence}" if isinstance(decision, Alone) else decision.sentence,
    )


def _book_of(allowed: object, policy: Policy) -> str:
    if not isinstance(allowed, Terms):
        return ""
    return "strict" if policy.strict else allowed.book


def _limits(decision: Decision, pod: Pod) -> tuple[int, int]:
    match decision:
        case Move():
            return decision.limit, decision.limit
        case Keep():
            return decision.limit, decision.target
        case Alone():
            return pod.limit, pod.limit


def _millis(micros: int) -> str:
    """Millionths of a CPU as a quantity."""
    return f"{-(-micros // 1000)}m" if micros else "0"


def reworded(report: Report, sentences: Mapping[str, str]) -> Report:
    """Replace the reasons of some pods, by key."""
    pods = tuple(
        structs.replace(line, why=sentences[line.pod]) if line.pod in sentences else line
        for line in report.pods
    )
    return structs.replace(report, pods=pods)
