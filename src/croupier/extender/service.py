"""The verbs filter and bind of an extender: request bytes in, response bytes out. HTTP is in server.py.

Filter returns one node, so the scheduler has nothing to score and there is no prioritize.

Refusals are reported as unresolvable, so that kube-scheduler does not try preemption. It cannot ask the
extender for victims, and would find that by its own accounting no preemption is needed and add that
contradiction to the Event.

kube-scheduler formats the text of an Event with Go's format verbs, so percent signs are doubled; otherwise
"50 % free" becomes "50 %!f(MISSING)ree". (The condition in the pod's status then shows two percent signs.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from croupier.capacity.manager import STRATEGY, TTL
from croupier.core.model.card_request import CardRequest
from croupier.core.placement.placement import Strategy
from croupier.extender import pod_request as pod_requests
from croupier.extender import protocol
from croupier.extender.assumed_pods import ASSUME_TTL
from croupier.extender.binder import Binder
from croupier.extender.node_ranking import NodeRanking
from croupier.extender.protocol import (
    ExtenderBindingResult,
    ExtenderFilterResult,
    Malformed,
)
from croupier.extender.requeue import RefusedPodRequeuer
from croupier.extender.response_pacing import ResponsePacer

NOT_READY: Final = "the ledger is not loaded yet"


@dataclass(frozen=True, slots=True)
class ExtenderOptions:
    strategy: Strategy = STRATEGY
    """The strategy for pods whose pool sets none."""
    ttl: timedelta = TTL
    """How long a hold waits for its Binding."""
    assume_ttl: float = ASSUME_TTL
    """Seconds that a pod stays assumed after filter."""


@dataclass(frozen=True, slots=True)
class ExtenderAnswer:
    """`outcome` is a label value for metrics."""

    body: bytes
    outcome: str
    status: int = 200


def strategy_by_pool(
    settings: ExtenderOptions, of_pool: Callable[[str], Strategy | None]
) -> Callable[[CardRequest], Strategy]:
    """The strategy of a request: that of its pool, or the default."""

    def strategy(wants: CardRequest) -> Strategy:
        named = (of_pool(want.pool) for want in wants if want.pool)
        return next((strategy for strategy in named if strategy is not None), settings.strategy)

    return strategy


class ExtenderService:
    def __init__(
        self,
        index: NodeRanking,
        binder: Binder,
        requeuer: RefusedPodRequeuer,
        *,
        pacer: ResponsePacer,
        ready: Callable[[], bool],
    ) -> None:
        self._index = index
        self._binder = binder
        self._requeuer = requeuer
        self._pacer = pacer
        self._ready = ready

    async def filter(self, body: bytes) -> ExtenderAnswer:
        try:
            args = protocol.arguments(body)
        except Malformed as bad:
            return _filtered(ExtenderFilterResult(error=_escaped(str(bad))), "malformed")
        if not self._ready():
            return _filtered(ExtenderFilterResult(error=NOT_READY), "unready")
        await self._binder.wait_for_slot()
        request = pod_requests.read(args.pod)
        choice = self._index.choose(request, args.node_names or ())
        if isinstance(choice, str):
            self._requeuer.placed(request.uid)
            return _filtered(ExtenderFilterResult(node_names=(choice,)), "chosen")
        self._requeuer.refused(request)
        sentences = {reason: _escaped(reason) for reason in set(choice.reasons.values())}
        reasons = {node: sentences[reason] for node, reason in choice.reasons.items()}
        refused = ExtenderFilterResult(failed_and_unresolvable_nodes=reasons)
        return _filtered(refused, "unreadable" if request.trouble else "nowhere")

    async def bind(self, body: bytes) -> ExtenderAnswer:
        try:
            args = protocol.binding(body)
        except Malformed as bad:
            return _bound(str(bad), "malformed")
        if not self._ready():
            return _bound(NOT_READY, "unready")
        why = await self._binder.bind(args)
        await self._pacer.wait_turn()
        return _bound(why, "refused" if why else "bound")


def _filtered(result: ExtenderFilterResult, outcome: str) -> ExtenderAnswer:
    return ExtenderAnswer(protocol.encode(result), outcome)


def _bound(why: str, outcome: str) -> ExtenderAnswer:
    return ExtenderAnswer(protocol.encode(ExtenderBindingResult(_escaped(why))), outcome)


def _escaped(sentence: str) -> str:
    return sentence.replace("%", "%%")
