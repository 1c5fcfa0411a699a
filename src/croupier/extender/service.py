"""The three verbs of an extender: bytes of a request in, bytes of the answer out. HTTP is elsewhere.

Refusals go out as nodes that removing pods would not help. kube-scheduler cannot ask us which pods
to remove, and would otherwise look for victims, find that by its own count none is needed, and put
that contradiction into the Event beside our sentence.

It also formats the text of an Event as Go formats strings, so a percent sign is sent twice: else "50 %
free" becomes "50 %!f(MISSING)ree". (The condition in the pod's status then shows both.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from croupier.book.manager import STRATEGY, TTL
from croupier.core.placing.placement import Strategy
from croupier.core.pods.want import Wants
from croupier.extender import asked as asking
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

NOT_YET: Final = "the ledger is not read yet"


@dataclass(frozen=True, slots=True)
class Settings:
    strategy: Strategy = STRATEGY
    """For pods whose pool names none."""
    ttl: timedelta = TTL
    """How long a hold waits for its Binding."""
    choices: int = 1
    """How many nodes filter leaves. With more than one, scores and chance have a say, too."""
    lasting: float = LASTING
    """Seconds a promise made in filter counts."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`outcome` is one word, for counting."""

    body: bytes
    outcome: str
    status: int = 200


def strategist(settings: Settings, of_pool: Callable[[str], Strategy | None]) -> Callable[[Wants], Strategy]:
    """How pods are placed: as their pool says, else as the setting does."""

    def strategy(wants: Wants) -> Strategy:
        named = (of_pool(want.pool) for want in wants if want.pool)
        return next((found for found in named if found is not None), settings.strategy)

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
        asked = asking.read(args.pod)
        found = self._index.choose(asked, args.node_names or (), most=self._choices)
        if isinstance(found, Chosen):
            self._waker.placed(asked.uid)
            return _filtered(ExtenderFilterResult(node_names=found.nodes), "chosen")
        self._waker.refused(asked)
        sentences = {reason: _said(reason) for reason in set(found.reasons.values())}
        reasons = {node: sentences[reason] for node, reason in found.reasons.items()}
        refused = ExtenderFilterResult(failed_and_unresolvable_nodes=reasons)
        return _filtered(refused, "unreadable" if asked.trouble else "nowhere")

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
        scores = self._index.scores(asking.read(args.pod), args.node_names or (), protocol.HIGHEST_SCORE)
        return [HostPriority(node, score) for node, score in scores.items()]


def _filtered(result: ExtenderFilterResult, outcome: str) -> Answer:
    return Answer(protocol.encode(result), outcome)


def _bound(why: str, outcome: str) -> Answer:
    return Answer(protocol.encode(ExtenderBindingResult(_said(why))), outcome)


def _said(sentence: str) -> str:
    return sentence.replace("%", "%%")
