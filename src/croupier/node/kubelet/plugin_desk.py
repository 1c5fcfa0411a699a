"""Where the kubelet's questions are answered: which devices for this container, and what it gets with them.

Deciding is core/nodes/allotment.py's; here is gathered what it needs. A pod may be known to the kubelet a
moment before our watch shows it, so a question about nobody waits a little: no longer, for the kubelet
admits one pod after the other, and gives Allocate no deadline.

The kubelet is asked who has what when it wants a preference, not when it allocates. In between it has
taken the devices but not noted for whom, and a listing that finds a pod ended would make it forget them
and hand them out twice. So listings also wait until an allocation that has begun is over.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from croupier.core.ledgers.ledger import Refused
from croupier.core.nodes import allotment, handed
from croupier.core.nodes.allotment import Answer, Asked, Given, Preference, Scene
from croupier.core.nodes.devices import Offer, Unit
from croupier.core.nodes.handed import BoundPod, Holding
from croupier.kube.clock import Clock, SystemClock
from croupier.node.cards.cards import CardError, Edits
from croupier.node.kubelet.calls import KubeletError, Refusal

LOOK: Final = 0.02
"""Seconds between two looks for the pod that is meant."""
NOTED: Final = 0.2
"""Seconds after which the kubelet has surely noted what was allocated."""
BEGUN: Final = 5.0
"""Seconds after which a preference is not followed by its Allocate any more."""

_log = structlog.get_logger(__name__)


class Resources(Protocol):
    """What the kubelet tells of its devices."""

    async def holdings(self) -> tuple[Holding, ...]: ...


@dataclass(frozen=True, slots=True)
class Equipment:
    """What the desk asks for when somebody is to be served."""

    pods: Callable[[], Sequence[BoundPod]]
    """Those of the node that are not finished; of those bound within one second, the first seen first."""
    edits: Callable[[Sequence[Unit]], Edits]
    """What a container needs to see cards, or MIG devices (`part` is the slot's id). May raise CardError."""
    patience: float = 2.0
    """Seconds to wait until a pod that nobody knows yet is known."""


@dataclass(frozen=True, slots=True)
class Dealt:
    """What a container gets."""

    answer: Answer
    edits: Edits


@dataclass(frozen=True, slots=True)
class _Begun:
    """A preference that was told, and when."""

    preference: Preference
    at: float


class Desk:
    def __init__(self, resources: Resources, equipment: Equipment, clock: Clock | None = None) -> None:
        self._resources = resources
        self._equipment = equipment
        self._clock = clock or SystemClock()
        self._offer = Offer()
        self._given: tuple[Given, ...] = ()
        self._begun: dict[str, _Begun] = {}
        self._account: tuple[Holding, ...] = ()
        """Who had what when the kubelet last wanted a preference."""
        self._allocated_at = float("-inf")

    def show(self, offer: Offer) -> None:
        """From now on this is what there is to give."""
        self._offer = offer

    async def holdings(self) -> tuple[Holding, ...]:
        """Who has what of our cards; not in the middle of an allocation."""
        while (wait := self._busy_for()) > 0:
            await self._clock.sleep(wait)
        return handed.known(await self._resources.holdings(), self._offer.cards)

    def _busy_for(self) -> float:
        now = self._clock.monotonic()
        begun = max((one.at + BEGUN for one in self._begun.values()), default=now)
        return min(LOOK, begun - now) if begun > now else self._allocated_at + NOTED - now

    async def prefer(self, asked: Asked) -> tuple[str, ...]:
        self._account = await self._told()
        patient_until = self._clock.monotonic() + self._equipment.patience
        preference = allotment.preferred(asked, self._scene(self._account))
        while preference.pod is None and self._clock.monotonic() < patient_until:
            await self._clock.sleep(LOOK)
            preference = allotment.preferred(asked, self._scene(self._account))
        self._begun[asked.resource] = _Begun(preference, self._clock.monotonic())
        return preference.ids

    async def _told(self) -> tuple[Holding, ...]:
        try:
            return handed.known(await self._resources.holdings(), self._offer.cards)
        except KubeletError as error:
            raise Refusal(f"nobody can say what is free: {error}") from error

    async def allocate(self, resource: str, ids: Collection[str]) -> Dealt:
        """Raises Refusal: the pod will not run, and shows the sentence."""
        scene, meant = await self._meant(resource, ids)
        answer = allotment.answer(resource, ids, scene, meant)
        if isinstance(answer, Refused):
            _log.warning("devices refused", resource=resource, devices=len(ids), why=str(answer))
            raise Refusal(f"{resource} cannot be given: {answer}")
        try:
            edits = self._equipment.edits(answer.parts)
        except CardError as error:
            raise Refusal(f"{resource} cannot be given: {error}") from error
        self._note(resource, ids, meant)
        return Dealt(answer, edits)

    async def _meant(self, resource: str, ids: Collection[str]) -> tuple[Scene, Preference | None]:
        """For whom the devices are: whom we preferred them for, or whose init container had them."""
        begun = self._begun.pop(resource, None)
        scene = self._scene(self._account)
        if begun is None:
            if (heir := allotment.inherited(resource, ids, scene)) is not None:
                return scene, heir
            scene = self._scene(await self._told())
        return scene, allotment.meant(resource, ids, scene, begun.preference if begun is not None else None)

    def _note(self, resource: str, ids: Iterable[str], meant: Preference | None) -> None:
        self._allocated_at = self._clock.monotonic()
        if meant is not None and meant.pod is not None:
            pod = meant.pod
            self._given = (
                *self._given,
                Given(pod.key, pod.uid, meant.container, resource, tuple(sorted(ids))),
            )

    def _scene(self, holdings: tuple[Holding, ...]) -> Scene:
        pods = handed.in_order(self._equipment.pods())
        alive = {pod.uid for pod in pods}
        self._given = tuple(one for one in self._given if one.uid in alive)
        return Scene(self._offer, pods, holdings, self._given)
