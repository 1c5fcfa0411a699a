"""The three verbs of an extender: request bytes in, response bytes out. HTTP is in server.py.

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

from croupier.book.manager import STRATEGY, TTL
from croupier.core.placing.placement import Strategy
from croupier.core.pods.want import Wants
from croupier.extender import asked as pod_requests
from croupier.extender import protocol
from croupier.extender.binder import Binder
from croupier.extender.index import Chosen, Index
from croupier.extender.promises import LASTING
from croupier.extender.protocol import (
    ExtenderArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    HostPriority,
    Malformed,
)
from croupier.extender.turnstile import Turnstile
from croupier.extender.waker import Waker

NOT_YET: Final = "the ledger is not loaded yet"


@dataclass(frozen=True, slots=True)
class Settings:
    strategy: Strategy = STRATEGY
    """The strategy for pods whose pool sets none."""
    ttl: timedelta = TTL
    """How long a hold waits for its Binding."""
    choices: int = 1
    """How many nodes filter returns. With more than one, the scheduler chooses by score and randomly."""
    lasting: float = LASTING
    """Seconds that a pod stays assumed after filter."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`outcome` is a label value for metrics."""

    body: bytes
    outcome: str
    status: int = 200


def strategist(settings: Settings, of_pool: Callable[[str], Strategy | None]) -> Callable[[Wants], Strategy]:
    """The strategy of a request: that of its pool, or the default."""

    def strategy(wants: Wants) -> Strategy:
        named = (of_pool(want.pool) for want in wants if want.pool)
        return next((strategy for strategy in named if strategy is not None), settings.strategy)

    return strategy


class Service:
    def __init__(
        self,
        index: Index,
        binder: Binder,
        waker: Waker,
        *,
        turnstile: Turnstile,
        ready: Callable[[], bool],
        choices: int = 1,
    ) -> None:
        self._index = index
        self._binder = binder
        self._waker = waker
        self._turnstile = turnstile
        self._ready = ready
        self._choices = choices

    async def filter(self, body: bytes) -> Answer:
        try:
            args = protocol.arguments(body)
        except Malformed as bad:
            return _filtered(ExtenderFilterResult(error=_said(str(bad))), "malformed")
        if not self._ready():
            return _filtered(ExtenderFilterResult(error=NOT_YET), "unready")
        await self._binder.room()
        request = pod_requests.read(args.pod)
        choice = self._index.choose(request, args.node_names or (), most=self._choices)
        if isinstance(choice, Chosen):
            self._waker.placed(request.uid)
            return _filtered(ExtenderFilterResult(node_names=choice.nodes), "chosen")
        self._waker.refused(request)
        sentences = {reason: _said(reason) for reason in set(choice.reasons.values())}
        reasons = {node: sentences[reason] for node, reason in choice.reasons.items()}
        refused = ExtenderFilterResult(failed_and_unresolvable_nodes=reasons)
        return _filtered(refused, "unreadable" if request.trouble else "nowhere")

    async def prioritize(self, body: bytes) -> Answer:
        try:
            args = protocol.arguments(body)
        except Malformed as bad:
            return Answer(protocol.encode(ExtenderBindingResult(str(bad))), "malformed", 400)
        return Answer(protocol.encode(self._scores(args)), "scored")

    async def bind(self, body: bytes) -> Answer:
        try:
            args = protocol.binding(body)
        except Malformed as bad:
            return _bound(str(bad), "malformed")
        if not self._ready():
            return _bound(NOT_YET, "unready")
        why = await self._binder.bind(args)
        await self._turnstile.leave()
        return _bound(why, "refused" if why else "bound")

    def _scores(self, args: ExtenderArgs) -> list[HostPriority]:
        scores = self._index.scores(
            pod_requests.read(args.pod), args.node_names or (), protocol.HIGHEST_SCORE
        )
        return [HostPriority(node, score) for node, score in scores.items()]


def _filtered(result: ExtenderFilterResult, outcome: str) -> Answer:
    return Answer(protocol.encode(result), outcome)


def _bound(why: str, outcome: str) -> Answer:
    return Answer(protocol.encode(ExtenderBindingResult(_said(why))), outcome)


def _said(sentence: str) -> str:
    return sentence.replace("%", "%%")
