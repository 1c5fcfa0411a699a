"""Bind a pod: hold its cards, then send the Binding that carries the allocation. Never the other way round.

Two writes stand between a pod and its node, and the process may end, or an answer be lost, around
each of them; another extender may be asked to bind the same pod. So a hold is durable before the Binding
is sent. It is given back only when the pod cannot be bound with it any more (it is gone, or bound
elsewhere, or was fenced: docs/decisions/0007), and only if nobody claimed it again meanwhile; when that
is not certain, its time to live decides. Asking twice is asking once: the same bind joins the one that
runs, and a pod that is bound here with an allocation of ours is bound.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Protocol

import structlog

from croupier.api import kinds, pods
from croupier.api.core_v1 import Pod
from croupier.api.meta import ObjectMeta
from croupier.api.mps import allocation
from croupier.book.manager import Change
from croupier.core.ledgers import ledger as ledgers
from croupier.core.ledgers import settle
from croupier.core.ledgers.claim import Claim
from croupier.core.ledgers.ledger import Grant, Ledger, Refused, Terms
from croupier.core.placing.placement import Strategy
from croupier.extender import asked as asking
from croupier.extender.asked import Asked
from croupier.extender.index import Index
from croupier.extender.protocol import ExtenderBindingArgs
from croupier.kube.client import Client
from croupier.kube.clock import Clock
from croupier.kube.errors import ApiError, Conflict, KubeError, NotFound, ServerError, Unreachable
from croupier.kube.resource import Raw

ROUNDS: Final = 3
"""How often a Binding is tried on a pod that changes, or that answers nothing."""

MOST_AT_ONCE: Final = 32
"""Binds under way above which filter hesitates: the scheduler gives up a bind that takes 5 seconds."""
LONGEST_HESITATION: Final = 2.0
"""Seconds."""


log = structlog.get_logger(__name__)


class Book(Protocol):
    """The part of the CapacityManager that binding needs."""

    async def claim(self, node: str, claim: Claim, strategy: Strategy | None = None) -> Grant | Refused: ...
    async def amend(self, node: str, change: Change, *, lazy: bool = False) -> Ledger: ...
    def ledger(self, node: str) -> Ledger | None: ...


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing is left to do; `why` is empty when the pod is bound here by us."""

    why: str = ""


BOUND: Final = Ended()


@dataclass(frozen=True, slots=True)
class Held:
    """One hold of a holder: claimed again it lasts longer, and is another."""

    holder: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class _Running:
    node: str
    task: "asyncio.Task[str]"


class Binder:
    def __init__(self, api: Client, book: Book, index: Index, clock: Clock, *, ttl: timedelta) -> None:
        self._api = api
        self._book = book
        self._index = index
        self._clock = clock
        self._ttl = ttl
        self._running: dict[str, _Running] = {}
        self._room = asyncio.Event()
        self._promotions: set[asyncio.Task[None]] = set()

    async def bind(self, args: ExtenderBindingArgs) -> str:
        """Empty when the pod is bound, else the sentence why not. Goes on when the caller stops waiting."""
        while (running := self._running.get(args.pod_uid)) is not None and running.node != args.node:
            await asyncio.wait({running.task})
        if running is None:
            running = _Running(args.node, asyncio.create_task(self._bind(args)))
            self._running[args.pod_uid] = running
            running.task.add_done_callback(lambda _: self._ended(args.pod_uid))
        return await asyncio.shield(running.task)

    def _ended(self, uid: str) -> None:
        self._running.pop(uid, None)
        self._room.set()

    async def room(self) -> None:
        """Returns when another pod can be bound soon, or after a while.

        The scheduler binds in the background as many as it likes, faster than any API server. Without
        this, binds queue until it gives them up, and everything is done twice.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_HESITATION):
                while len(self._running) >= MOST_AT_ONCE:
                    self._room.clear()
                    await self._room.wait()

    async def drain(self, *, promotions: bool = True) -> None:
        """Until everything that was begun is done; promotions can be left to the book, which ends later."""
        while pending := {one.task for one in self._running.values()} | (
            self._promotions if promotions else set()
        ):
            await asyncio.wait(pending)

    async def _bind(self, args: ExtenderBindingArgs) -> str:
        try:
            ended = await _Placing(self, args).run()
        except KubeError as unknown:
            return f"pod {args.key} may or may not be bound to {args.node}: {unknown}"
        finally:
            self._index.take_back(args.pod_uid)
        if ended is BOUND:
            self._promote(f"{args.key}/{args.pod_uid}", args.node)
        return ended.why

    def _promote(self, holder: str, node: str) -> None:
        """Held becomes Bound with somebody else's write; if it fails, those who watch the pods do it."""
        promotion = asyncio.create_task(self._promoted(holder, node))
        self._promotions.add(promotion)
        promotion.add_done_callback(self._promotions.discard)

    async def _promoted(self, holder: str, node: str) -> None:
        try:
            await self._book.amend(node, partial(ledgers.bind, holder=holder), lazy=True)
        except (KubeError, LookupError) as error:
            log.warning("a bound pod is still Held", holder=holder, node=node, error=str(error))

    def promised(self, args: ExtenderBindingArgs) -> Asked | None:
        """The pod as filter saw it, if that is still what is to be bound."""
        promise = self._index.promise(args.pod_uid)
        if promise is None or promise.asked.key != args.key or not promise.asked.version:
            return None
        return promise.asked

    async def hold(self, asked: Asked, node: str, round_: int) -> Grant | Refused:
        """Each round lasts a second longer, the unit of the record: it tells our hold from an older one."""
        terms = Terms(until=self._clock.now() + self._ttl + timedelta(seconds=round_))
        claim = Claim(asked.holder, asked.wants, terms, asked.priority)
        return await self._book.claim(node, claim, self._index.strategy(asked.wants))

    def held(self, holder: str, node: str) -> Held | None:
        """The hold as it is in the book now."""
        ledger = self._book.ledger(node)
        return Held(holder, ledger.held[holder]) if ledger is not None and holder in ledger.held else None

    async def let_go(self, held: Held, node: str) -> None:
        with contextlib.suppress(LookupError):  # the node left the ledger, and everything on it with it
            await self._book.amend(node, partial(_freed, held=held))

    async def pod(self, args: ExtenderBindingArgs) -> Pod | None:
        try:
            return await self._api.get(kinds.PODS, args.pod_name, namespace=args.pod_namespace)
        except NotFound:
            return None

    async def send(self, asked: Asked, args: ExtenderBindingArgs, grant: Grant) -> None:
        ledger = self._book.ledger(args.node) or Ledger(args.node)
        body = _binding(asked, args, allocation.encode(grant, ledger))
        await self._api.create(
            kinds.PODS, body, namespace=args.pod_namespace, name=args.pod_name, subresource="binding"
        )

    async def fence(self, asked: Asked, args: ExtenderBindingArgs) -> None:
        """Raise the pod's resourceVersion: a Binding that is still on its way will fail."""
        read = ObjectMeta(uid=asked.uid, resource_version=asked.version)
        patch = allocation.fence(read, self._clock.now())
        await self._api.patch(kinds.PODS, args.pod_name, patch, namespace=args.pod_namespace)


class _Placing:
    """One bind, from the first look at the pod to its end."""

    def __init__(self, binder: Binder, args: ExtenderBindingArgs) -> None:
        self._binder = binder
        self._args = args
        self._holder = f"{args.key}/{args.pod_uid}"
        self._grant: Grant = ()
        self._held: Held | None = None
        self._lost: KubeError | None = None
        """An answer that never came: a Binding of ours may have been carried out, or may yet be."""

    async def run(self) -> Ended:
        """Raises a KubeError when it cannot be known how it ended; the hold is left to its time to live."""
        looked: Asked | Ended = self._binder.promised(self._args) or await self._look()
        for round_ in range(ROUNDS):
            if isinstance(looked, Ended):
                return looked
            granted = await self._binder.hold(looked, self._args.node, round_)
            if isinstance(granted, Refused):
                return Ended(str(granted))
            self._grant, self._held = granted, self._binder.held(self._holder, self._args.node)
            looked = await self._try(looked)
        why = str(self._lost or f"it changed {ROUNDS} times meanwhile")
        return looked if isinstance(looked, Ended) else await self._give_up(looked, why)

    async def _try(self, asked: Asked) -> Asked | Ended:
        try:
            await self._binder.send(asked, self._args, self._grant)
        except (ServerError, Unreachable) as lost:
            self._lost = lost
        except (Conflict, NotFound):
            pass  # the pod is not what it was
        except (ApiError, ValueError) as refused:
            return await self._give_up(asked, str(refused))
        else:
            return BOUND
        looked = await self._look()
        if isinstance(looked, Ended) and looked is not BOUND:
            await self._let_go()
        return looked

    async def _give_up(self, asked: Asked, why: str) -> Ended:
        """Give the cards back; first let nobody bind the pod any more who saw it while we held them."""
        for _ in range(ROUNDS):
            try:
                await self._binder.fence(asked, self._args)
            except (Conflict, NotFound):
                looked = await self._look()
                if looked is BOUND:
                    return BOUND
                if isinstance(looked, Asked):
                    asked = looked
                    continue
            await self._let_go()
            break
        return Ended(f"pod {self._args.key} could not be bound to {self._args.node}: {why}")

    async def _let_go(self) -> None:
        if self._held is not None:
            await self._binder.let_go(self._held, self._args.node)

    async def _look(self) -> Asked | Ended:
        """The pod as it is now, if it can be bound."""
        args, pod = self._args, await self._binder.pod(self._args)
        if pod is None:
            return Ended(f"pod {args.key} is gone")
        if pod.metadata.uid != args.pod_uid:
            return Ended(f"pod {args.key} is another one now, with UID {pod.metadata.uid}")
        if pod.spec.node_name:
            return self._found_bound(pod)
        if pod.metadata.deletion_timestamp is not None or pod.is_finished:
            return Ended(f"pod {args.key} has ended, or is being deleted")
        seen = asking.read(pod)
        return Ended(seen.trouble) if seen.trouble else seen

    def _found_bound(self, pod: Pod) -> Ended:
        node, args = pod.spec.node_name, self._args
        if node != args.node:
            return Ended(f"pod {args.key} is bound to {node} already")
        granted = pods.view(pod).grant
        if not granted or (self._grant and set(granted) != set(self._grant)):
            return Ended(
                f"pod {args.key} was bound to {node} by somebody else, without the cards held for it"
            )
        return BOUND


def _freed(ledger: Ledger, held: Held) -> Ledger:
    """A Reservation that the pod took over waits on for the next pod of that name."""
    still = held.holder in ledger.held and ledger.held[held.holder] == held.until
    return settle.free(ledger, held.holder) if still else ledger


def _binding(asked: Asked, args: ExtenderBindingArgs, allocated: str) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": args.pod_name,
            "namespace": args.pod_namespace,
            "uid": asked.uid,
            "resourceVersion": asked.version,
            "annotations": {allocation.ALLOCATION: allocated},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": args.node},
    }
