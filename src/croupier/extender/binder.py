"""Binds a pod: first holds its cards, then sends the Binding that carries the allocation.

The process may crash or lose an answer around each of the two writes, and another extender may bind the same
pod. So the hold is durable before the Binding is sent. The hold is released only if the pod cannot be bound
with it any more (the pod is gone, bound elsewhere or fenced: docs/decisions/0007) and the hold was not
claimed again in the meantime; if that is uncertain, the hold expires by its TTL. Bind is idempotent: a
repeated bind joins the running one, and a pod that is bound here with our allocation counts as bound.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog

from croupier.api import convert_pod, kinds
from croupier.api.core_v1 import Pod
from croupier.api.meta import ObjectMeta
from croupier.api.mps import allocation
from croupier.capacity.manager import CapacityManager
from croupier.core.claims import holder_lifecycle
from croupier.core.claims.claim import CardClaim
from croupier.core.explanation import explain
from croupier.core.ledger import ledger as ledgers
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import Grant
from croupier.core.model.refusal import Refusal
from croupier.extender import pod_request as pod_requests
from croupier.extender.node_ranking import NodeRanking
from croupier.extender.pod_request import PodRequest
from croupier.extender.protocol import ExtenderBindingArgs
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock
from croupier.kube.client.errors import ApiError, Conflict, KubeError, NotFound, ServerError, Unreachable
from croupier.kube.client.resource import Raw
from croupier.kube.controller.event_series import EventReference

BIND_ATTEMPTS: Final = 3
"""How often a Binding is sent if the pod changes or the answer is lost."""

MAX_CONCURRENT_BINDS: Final = 32
"""Running binds above which filter waits: the scheduler gives up a bind after 5 seconds."""
MAX_SLOT_WAIT: Final = 2.0
"""Maximum seconds that filter waits for running binds."""

ALLOCATED: Final = "GPUAllocated"
"""The reason of the Event that names the cards of a bound pod."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BindResult:
    """The end of a bind; `why` is empty if the pod is bound here by us."""

    why: str = ""


BOUND: Final = BindResult()


@dataclass(frozen=True, slots=True)
class HoldRef:
    """Identifies one hold of a holder: a repeated claim changes `until`."""

    holder: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class _RunningBind:
    node: str
    task: "asyncio.Task[str]"


class Binder:
    def __init__(
        self,
        api: Client,
        manager: CapacityManager,
        index: NodeRanking,
        clock: Clock,
        *,
        ttl: timedelta,
        record: Callable[..., None] = lambda *_event, **_details: None,
    ) -> None:
        self._api = api
        self._manager = manager
        self._index = index
        self._clock = clock
        self._ttl = ttl
        self._record = record
        self._running: dict[str, _RunningBind] = {}
        self._slot_free = asyncio.Event()
        self._promotions: set[asyncio.Task[None]] = set()

    async def bind(self, args: ExtenderBindingArgs) -> str:
        """Empty if the pod is bound, else the reason. Continues if the caller stops waiting."""
        while (running := self._running.get(args.pod_uid)) is not None and running.node != args.node:
            await asyncio.wait({running.task})
        if running is None:
            running = _RunningBind(args.node, asyncio.create_task(self._bind(args)))
            self._running[args.pod_uid] = running
            running.task.add_done_callback(lambda _: self._ended(args.pod_uid))
        return await asyncio.shield(running.task)

    def _ended(self, uid: str) -> None:
        self._running.pop(uid, None)
        self._slot_free.set()

    async def wait_for_slot(self) -> None:
        """Wait until another bind can start soon, at most `MAX_SLOT_WAIT` seconds.

        The scheduler starts any number of binds in the background, faster than the API server can process
        them. Without this limit binds would queue until the scheduler gives them up and repeats them.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_SLOT_WAIT):
                while len(self._running) >= MAX_CONCURRENT_BINDS:
                    self._slot_free.clear()
                    await self._slot_free.wait()

    async def drain(self, *, promotions: bool = True) -> None:
        """Wait for all running binds; promotions can be left to the capacity manager, which stops later."""
        while pending := {running.task for running in self._running.values()} | (
            self._promotions if promotions else set()
        ):
            await asyncio.wait(pending)

    async def _bind(self, args: ExtenderBindingArgs) -> str:
        try:
            ended = await _BindAttempt(self, args).run()
        except KubeError as unknown:
            return f"pod {args.key} may or may not be bound to {args.node}: {unknown}"
        finally:
            self._index.forget_assumed(args.pod_uid)
        if ended is BOUND:
            self._report(args)
            self._promote(f"{args.key}/{args.pod_uid}", args.node)
        return ended.why

    def _report(self, args: ExtenderBindingArgs) -> None:
        """Record which cards the pod has; a repeated bind records the same Event."""
        ledger = self._manager.ledger(args.node)
        if ledger is None or not (grant := ledger.grant(f"{args.key}/{args.pod_uid}")):
            return  # the pod has ended already
        kind = kinds.PODS
        pod = EventReference(kind.api_version, kind.kind, args.pod_namespace, args.pod_name, args.pod_uid)
        sentence = explain.allocation_sentence(ledger, grant)
        held = explain.describe_grant(ledger, grant)
        log.info(f"pod {args.key} is bound to {args.node} and holds {held}", pod=args.key, node=args.node)
        self._record(pod, ALLOCATED, sentence, action="Bind")

    def _promote(self, holder: str, node: str) -> None:
        """Make the holder Bound with the next ledger write; on failure the holder controller does it."""
        promotion = asyncio.create_task(self._promoted(holder, node))
        self._promotions.add(promotion)
        promotion.add_done_callback(self._promotions.discard)

    async def _promoted(self, holder: str, node: str) -> None:
        try:
            await self._manager.amend(node, partial(ledgers.bind, holder=holder), lazy=True)
        except (KubeError, LookupError) as error:
            log.warning(
                f"the hold of {holder} on node {node} was not marked Bound",
                holder=holder,
                node=node,
                error=str(error),
            )

    def assumed_request(self, args: ExtenderBindingArgs) -> PodRequest | None:
        """The pod as filter read it, if it is still the pod to bind."""
        assumed = self._index.assumed(args.pod_uid)
        if assumed is None or assumed.request.key != args.key or not assumed.request.version:
            return None
        return assumed.request

    async def hold(self, request: PodRequest, node: str, round_: int) -> Grant | Refusal:
        """Each attempt expires a second later, so that its hold differs from an older one in the ledger."""
        terms = HoldTerms(until=self._clock.now() + self._ttl + timedelta(seconds=round_))
        claim = CardClaim(request.holder, request.wants, terms, request.priority)
        return await self._manager.claim(node, claim, self._index.strategy(request.wants))

    def held(self, holder: str, node: str) -> HoldRef | None:
        """The hold in the current ledger."""
        ledger = self._manager.ledger(node)
        return HoldRef(holder, ledger.held[holder]) if ledger is not None and holder in ledger.held else None

    async def release_hold(self, held: HoldRef, node: str) -> None:
        with contextlib.suppress(LookupError):  # the node has no ledger any more, so the hold does not exist
            await self._manager.amend(node, partial(_freed, held=held))

    async def pod(self, args: ExtenderBindingArgs) -> Pod | None:
        try:
            return await self._api.get(kinds.PODS, args.pod_name, namespace=args.pod_namespace)
        except NotFound:
            return None

    async def send(self, request: PodRequest, args: ExtenderBindingArgs, grant: Grant) -> None:
        ledger = self._manager.ledger(args.node) or Ledger(args.node)
        body = _binding(request, args, allocation.encode(grant, ledger))
        await self._api.create(
            kinds.PODS, body, namespace=args.pod_namespace, name=args.pod_name, subresource="binding"
        )

    async def fence(self, request: PodRequest, args: ExtenderBindingArgs) -> None:
        """Change the pod's resourceVersion, so that a Binding in flight fails."""
        read = ObjectMeta(uid=request.uid, resource_version=request.version)
        patch = allocation.fence_patch(read, self._clock.now())
        await self._api.patch(kinds.PODS, args.pod_name, patch, namespace=args.pod_namespace)


class _BindAttempt:
    """One bind, from reading the pod to its result."""

    def __init__(self, binder: Binder, args: ExtenderBindingArgs) -> None:
        self._binder = binder
        self._args = args
        self._holder = f"{args.key}/{args.pod_uid}"
        self._grant: Grant = ()
        self._held: HoldRef | None = None
        self._lost: KubeError | None = None
        """The error of a Binding whose answer was lost: it may have taken effect, or may still do so."""

    async def run(self) -> BindResult:
        """Raises a KubeError if the outcome is unknown; the hold then expires by its TTL."""
        looked: PodRequest | BindResult = self._binder.assumed_request(self._args) or await self._look()
        for round_ in range(BIND_ATTEMPTS):
            if isinstance(looked, BindResult):
                return looked
            granted = await self._binder.hold(looked, self._args.node, round_)
            if isinstance(granted, Refusal):
                return BindResult(str(granted))
            self._grant, self._held = granted, self._binder.held(self._holder, self._args.node)
            looked = await self._try(looked)
        why = str(self._lost or f"the pod changed {BIND_ATTEMPTS} times during the bind")
        return looked if isinstance(looked, BindResult) else await self._give_up(looked, why)

    async def _try(self, request: PodRequest) -> PodRequest | BindResult:
        try:
            await self._binder.send(request, self._args, self._grant)
        except (ServerError, Unreachable) as lost:
            self._lost = lost
        except (Conflict, NotFound):
            pass  # the pod changed or was deleted
        except (ApiError, ValueError) as refused:
            return await self._give_up(request, str(refused))
        else:
            return BOUND
        looked = await self._look()
        if isinstance(looked, BindResult) and looked is not BOUND:
            await self._release_hold()
        return looked

    async def _give_up(self, request: PodRequest, why: str) -> BindResult:
        """Release the cards, after fencing every Binding that was prepared while we held them."""
        for _ in range(BIND_ATTEMPTS):
            try:
                await self._binder.fence(request, self._args)
            except (Conflict, NotFound):
                looked = await self._look()
                if looked is BOUND:
                    return BOUND
                if isinstance(looked, PodRequest):
                    request = looked
                    continue
            await self._release_hold()
            break
        return BindResult(f"pod {self._args.key} could not be bound to {self._args.node}: {why}")

    async def _release_hold(self) -> None:
        if self._held is not None:
            await self._binder.release_hold(self._held, self._args.node)

    async def _look(self) -> PodRequest | BindResult:
        """Read the pod, and end the bind if it cannot be bound."""
        args, pod = self._args, await self._binder.pod(self._args)
        if pod is None:
            return BindResult(f"pod {args.key} is gone")
        if pod.metadata.uid != args.pod_uid:
            return BindResult(f"pod {args.key} was replaced by a pod with UID {pod.metadata.uid}")
        if pod.spec.node_name:
            return self._found_bound(pod)
        if pod.metadata.deletion_timestamp is not None or pod.is_finished:
            return BindResult(f"pod {args.key} has ended or is being deleted")
        request = pod_requests.read(pod)
        return BindResult(request.trouble) if request.trouble else request

    def _found_bound(self, pod: Pod) -> BindResult:
        node, args = pod.spec.node_name, self._args
        if node != args.node:
            return BindResult(f"pod {args.key} is already bound to {node}")
        granted = convert_pod.view(pod).grant
        if not granted or (self._grant and set(granted) != set(self._grant)):
            return BindResult(
                f"pod {args.key} was bound to {node} by another scheduler, without the cards held for it"
            )
        return BOUND


def _freed(ledger: Ledger, held: HoldRef) -> Ledger:
    """Release the hold if it did not change; a hold of a Reservation returns to the Reservation."""
    still = held.holder in ledger.held and ledger.held[held.holder] == held.until
    return holder_lifecycle.free(ledger, held.holder) if still else ledger


def _binding(request: PodRequest, args: ExtenderBindingArgs, allocated: str) -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": args.pod_name,
            "namespace": args.pod_namespace,
            "uid": request.uid,
            "resourceVersion": request.version,
            "annotations": {allocation.ALLOCATION: allocated},
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": args.node},
    }
