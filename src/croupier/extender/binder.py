"""Binds a pod: first holds its cards, then sends the Binding that carries the allocation.

The process may crash or lose an answer around each of the two writes, and another extender may bind the same
pod. So the hold is durable before the Binding is sent. The hold is released only if the pod cannot be bound
with it any more (the pod is gone, bound elsewhere or fenced: docs/decisions/0007) and the hold was not
claimed again in the meantime; if that is uncertain, the hold expires by its TTL. Bind is idempotent: a
repeated bind joins the running one, and a pod that is bound here with our allocation counts as bound.
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
from croupier.extender import asked as pod_requests
from croupier.extender.asked import Asked
from croupier.extender.index import Index
from croupier.extender.protocol import ExtenderBindingArgs
from croupier.kube.client import Client
from croupier.kube.clock import Clock
from croupier.kube.errors import ApiError, Conflict, KubeError, NotFound, ServerError, Unreachable
from croupier.kube.resource import Raw

ROUNDS: Final = 3
"""How often a Binding is sent if the pod changes or the answer is lost."""

MOST_AT_ONCE: Final = 32
"""Running binds above which filter waits: the scheduler gives up a bind after 5 seconds."""
LONGEST_HESITATION: Final = 2.0
"""Maximum seconds that filter waits for running binds."""

log = structlog.get_logger(__name__)


class Book(Protocol):
    """The methods of the CapacityManager that binding needs."""

    async def claim(self, node: str, claim: Claim, strategy: Strategy | None = None) -> Grant | Refused: ...
    async def amend(self, node: str, change: Change, *, lazy: bool = False) -> Ledger: ...
    def ledger(self, node: str) -> Ledger | None: ...


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a bind; `why` is empty if the pod is bound here by us."""

    why: str = ""


BOUND: Final = Ended()


@dataclass(frozen=True, slots=True)
class Held:
    """Identifies one hold of a holder: a repeated claim changes `until`."""

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
        """Empty if the pod is bound, else the reason. Continues if the caller stops waiting."""
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
        """Wait until another bind can start soon, at most `MAX_SLOT_WAIT` seconds.

        The scheduler starts any number of binds in the background, faster than the API server can process
        them. Without this limit binds would queue until the scheduler gives them up and repeats them.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_HESITATION):
                while len(self._running) >= MOST_AT_ONCE:
                    self._room.clear()
                    await self._room.wait()

    async def drain(self, *, promotions: bool = True) -> None:
        """Wait for all running binds; promotions can be left to the capacity manager, which stops later."""
        while pending := {running.task for running in self._running.values()} | (
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
        """Make the holder Bound with the next ledger write; on failure the holder controller does it."""
        promotion = asyncio.create_task(self._promoted(holder, node))
        self._promotions.add(promotion)
        promotion.add_done_callback(self._promotions.discard)

    async def _promoted(self, holder: str, node: str) -> None:
        try:
            await self._book.amend(node, partial(ledgers.bind, holder=holder), lazy=True)
        except (KubeError, LookupError) as error:
            log.warning(
                "could not promote the holder of a bound pod", holder=holder, node=node, error=str(error)
            )

    def promised(self, args: ExtenderBindingArgs) -> Asked | None:
        """The pod as filter read it, if it is still the pod to bind."""
        assumed = self._index.promise(args.pod_uid)
        if assumed is None or assumed.asked.key != args.key or not assumed.asked.version:
            return None
        return assumed.asked

    async def hold(self, asked: Asked, node: str, round_: int) -> Grant | Refused:
        """Each attempt expires a second later, so that its hold differs from an older one in the ledger."""
        terms = Terms(until=self._clock.now() + self._ttl + timedelta(seconds=round_))
        claim = Claim(asked.holder, asked.wants, terms, asked.priority)
        return await self._book.claim(node, claim, self._index.strategy(asked.wants))

    def held(self, holder: str, node: str) -> Held | None:
        """The hold in the current ledger."""
        ledger = self._book.ledger(node)
        return Held(holder, ledger.held[holder]) if ledger is not None and holder in ledger.held else None

    async def let_go(self, held: Held, node: str) -> None:
        with contextlib.suppress(LookupError):  # the node has no ledger any more, so the hold does not exist
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
        """Change the pod's resourceVersion, so that a Binding in flight fails."""
        read = ObjectMeta(uid=asked.uid, resource_version=asked.version)
        patch = allocation.fence(read, self._clock.now())
        await self._api.patch(kinds.PODS, args.pod_name, patch, namespace=args.pod_namespace)


class _Placing:
    """One bind, from reading the pod to its result."""

    def __init__(self, binder: Binder, args: ExtenderBindingArgs) -> None:
        self._binder = binder
        self._args = args
        self._holder = f"{args.key}/{args.pod_uid}"
        self._grant: Grant = ()
        self._held: Held | None = None
        self._lost: KubeError | None = None
        """The error of a Binding whose answer was lost: it may have taken effect, or may still do so."""

    async def run(self) -> Ended:
        """Raises a KubeError if the outcome is unknown; the hold then expires by its TTL."""
        looked: Asked | Ended = self._binder.promised(self._args) or await self._look()
        for round_ in range(ROUNDS):
            if isinstance(looked, Ended):
                return looked
            granted = await self._binder.hold(looked, self._args.node, round_)
            if isinstance(granted, Refused):
                return Ended(str(granted))
            self._grant, self._held = granted, self._binder.held(self._holder, self._args.node)
            looked = await self._try(looked)
        why = str(self._lost or f"the pod changed {ROUNDS} times during the bind")
        return looked if isinstance(looked, Ended) else await self._give_up(looked, why)

    async def _try(self, asked: Asked) -> Asked | Ended:
        try:
            await self._binder.send(asked, self._args, self._grant)
        except (ServerError, Unreachable) as lost:
            self._lost = lost
        except (Conflict, NotFound):
            pass  # the pod changed or was deleted
        except (ApiError, ValueError) as refused:
            return await self._give_up(asked, str(refused))
        else:
            return BOUND
        looked = await self._look()
        if isinstance(looked, Ended) and looked is not BOUND:
            await self._let_go()
        return looked

    async def _give_up(self, asked: Asked, why: str) -> Ended:
        """Release the cards, after fencing every Binding that was prepared while we held them."""
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
        """Read the pod, and end the bind if it cannot be bound."""
        args, pod = self._args, await self._binder.pod(self._args)
        if pod is None:
            return Ended(f"pod {args.key} is gone")
        if pod.metadata.uid != args.pod_uid:
            return Ended(f"pod {args.key} was replaced by a pod with UID {pod.metadata.uid}")
        if pod.spec.node_name:
            return self._found_bound(pod)
        if pod.metadata.deletion_timestamp is not None or pod.is_finished:
            return Ended(f"pod {args.key} has ended or is being deleted")
        request = pod_requests.read(pod)
        return Ended(request.trouble) if request.trouble else request

    def _found_bound(self, pod: Pod) -> Ended:
        node, args = pod.spec.node_name, self._args
        if node != args.node:
            return Ended(f"pod {args.key} is already bound to {node}")
        granted = pods.view(pod).grant
        if not granted or (self._grant and set(granted) != set(self._grant)):
            return Ended(
                f"pod {args.key} was bound to {node} by another scheduler, without the cards held for it"
            )
        return BOUND


def _freed(ledger: Ledger, held: Held) -> Ledger:
    """Release the hold if it did not change; a hold of a Reservation returns to the Reservation."""
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
