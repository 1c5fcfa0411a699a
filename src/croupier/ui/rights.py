"""What a viewer of the page may see, asked of the API server: the same answers that kubectl would get.

The page reads everything with its own account and cuts it per viewer. Each right is one access review,
remembered for a short time, so that a changed Role takes effect within half a minute, and a right that was
missing within seconds.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from croupier.api import kinds
from croupier.api.gpu import GPUPool
from croupier.core.pools import admission as pool_admission
from croupier.core.pools.admission import EVERYONE, PodRequester, PoolAccess
from croupier.kube.client import concurrency
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.resource import Resource
from croupier.ui.viewer import Viewer

YES_SECONDS: Final = 30.0
"""How long a granted right is believed."""
NO_SECONDS: Final = 5.0
"""How long a missing right is believed."""
REVIEWS_PER_SECOND: Final = 20
"""A viewer of many namespaces causes about this many reviews a second at most."""
MAX_ANSWERS: Final = 50_000
AT_ONCE: Final = 8
"""Reviews that run at the same time, for all viewers together."""


@dataclass(frozen=True, slots=True)
class Rights:
    """What a viewer sees. Viewers with equal rights share one encoded stream."""

    everything: bool = False
    """May list nodereservations, which name every holder of every card."""
    cards: bool = False
    """May list gpudevices."""
    namespaces: frozenset[str] | None = frozenset()
    """May list pods in these namespaces; None: in all."""
    pools: frozenset[str] | None = frozenset()
    """Pools that are open to the viewer; None: may list gpupools."""

    def sees_namespace(self, namespace: str) -> bool:
        """Whether names of pods and Reservations of the namespace may be shown."""
        return self.everything or self.namespaces is None or namespace in self.namespaces

    def sees_pool(self, name: str) -> bool:
        return self.everything or self.pools is None or name in self.pools

    @property
    def whole_pools(self) -> bool:
        """Whether GPUPools may be shown with everything that they contain."""
        return self.everything or self.pools is None

    @property
    def all_cards(self) -> bool:
        return self.everything or self.cards


ALL: Final = Rights(True, True, None, None)


def open_pools(
    pools: Iterable[GPUPool], namespaces: frozenset[str] | None, groups: tuple[str, ...]
) -> frozenset[str]:
    """Pools whose `spec.access` admits pods of one of the namespaces, or pods that the user creates there."""
    return frozenset(pool.metadata.name for pool in pools if _is_open(_access(pool), namespaces, groups))


def _access(pool: GPUPool) -> PoolAccess:
    access = pool.spec.access
    return PoolAccess(
        frozenset(access.namespaces), frozenset(access.service_accounts), frozenset(access.dex_groups)
    )


def _is_open(access: PoolAccess, namespaces: frozenset[str] | None, groups: tuple[str, ...]) -> bool:
    accounts = [account.partition("/") for account in sorted(access.accounts)]
    if namespaces is None:  # all namespaces, also those that have no pods yet
        named = access.namespaces | {namespace for namespace, _, _ in accounts}
        namespaces = named or frozenset(("default",))
    requesters = [PodRequester(namespace, groups=groups) for namespace in namespaces]
    requesters += [
        PodRequester(namespace, name) for namespace, _, name in accounts if namespace in namespaces
    ]
    if access == EVERYONE:
        return bool(requesters)
    return any(pool_admission.admits(access, requester) for requester in requesters)


@dataclass(frozen=True, slots=True)
class AccessQuestion:
    """May this user list this kind, in this namespace or (empty) everywhere?"""

    user: str
    groups: tuple[str, ...]
    resource: str
    group: str = ""
    namespace: str = ""

    def spec(self, *, about_self: bool) -> dict[str, Any]:
        attributes = {"verb": "list", "resource": self.resource, "group": self.group}
        if self.namespace:
            attributes["namespace"] = self.namespace
        spec: dict[str, Any] = {"resourceAttributes": attributes}
        return spec if about_self else {**spec, "user": self.user, "groups": list(self.groups)}


class RightsReader:
    """The rights of viewers. In mode local it asks what the process itself may do, because it is the user."""

    def __init__(
        self,
        api: Client,
        *,
        namespaces: Callable[[], Iterable[str]],
        pools: Callable[[], Iterable[GPUPool]],
        clock: Clock | None = None,
    ) -> None:
        """`namespaces` and `pools` are those that occur in the cluster now."""
        self._api = api
        self._namespaces = namespaces
        self._pools = pools
        self._clock = clock or SystemClock()
        self._answers: OrderedDict[AccessQuestion, tuple[bool, float]] = OrderedDict()
        self._running: dict[AccessQuestion, asyncio.Task[bool]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def of(self, viewer: Viewer) -> Rights:
        """What the viewer sees now. Raises KubeError if the API server does not answer."""
        everything, cards, pods, pools = await asyncio.gather(
            self._may_list(viewer, kinds.NODE_RESERVATIONS),
            self._may_list(viewer, kinds.GPU_DEVICES),
            self._may_list(viewer, kinds.PODS),
            self._may_list(viewer, kinds.GPU_POOLS),
        )
        if everything:
            return ALL
        namespaces = None if pods else await self._visible_namespaces(viewer)
        return Rights(
            cards=cards,
            namespaces=namespaces,
            pools=None if pools else open_pools(self._pools(), namespaces, viewer.groups),
        )

    async def _visible_namespaces(self, viewer: Viewer) -> frozenset[str]:
        named = sorted(set(self._namespaces()))
        no_seconds = min(YES_SECONDS, max(NO_SECONDS, len(named) / REVIEWS_PER_SECOND))
        allowed = await concurrency.gather_limited(
            self._may_list(viewer, kinds.PODS, namespace=namespace, no_seconds=no_seconds)
            for namespace in named
        )
        return frozenset(namespace for namespace, yes in zip(named, allowed, strict=True) if yes)

    async def _may_list(
        self,
        viewer: Viewer,
        resource: Resource[Any],
        *,
        namespace: str = "",
        no_seconds: float = NO_SECONDS,
    ) -> bool:
        question = AccessQuestion(viewer.user, viewer.groups, resource.plural, resource.group, namespace)
        remembered = self._answers.get(question)
        if remembered is not None:
            allowed, asked = remembered
            if self._clock.monotonic() - asked < (YES_SECONDS if allowed else no_seconds):
                return allowed
        task = self._running.get(question)
        if task is None:
            task = asyncio.create_task(self._ask(question, about_self=viewer.mode == "local"))
            self._running[question] = task
            task.add_done_callback(lambda done: self._forget(question, done))
        return await asyncio.shield(task)  # a viewer who leaves does not cancel the question of another

    def _forget(self, question: AccessQuestion, task: asyncio.Task[bool]) -> None:
        self._running.pop(question, None)
        if not task.cancelled():
            task.exception()  # all viewers who waited may have left; an error that is not read is logged

    async def _ask(self, question: AccessQuestion, *, about_self: bool) -> bool:
        reviews = kinds.SELF_SUBJECT_ACCESS_REVIEWS if about_self else kinds.SUBJECT_ACCESS_REVIEWS
        async with self._slots:
            asked = self._clock.monotonic()
            review = await self._api.create(reviews, {"spec": question.spec(about_self=about_self)})
        allowed = bool((review.get("status") or {}).get("allowed"))
        self._answers[question] = allowed, asked
        self._answers.move_to_end(question)
        while len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)
        return allowed
