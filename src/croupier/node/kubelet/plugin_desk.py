"""Answers the kubelet's calls GetPreferredAllocation and Allocate.

The decisions are made in core/nodes/device_allocation.py; this module collects the inputs. The kubelet may
know a pod shortly before the watch delivers it, so a call for an unknown pod waits for it. The wait is short,
because the kubelet admits one pod after the other and gives Allocate no deadline.

The kubelet's device assignments are listed during GetPreferredAllocation, not during Allocate. In between the
kubelet has taken the devices but has not yet recorded their pod, and a List call that finds a finished pod
would make it forget them and allocate them twice. So List calls wait until an allocation in progress is over.
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
"""Seconds between two attempts to find the pod."""
NOTED: Final = 0.2
"""Seconds after which the kubelet has certainly recorded an allocation."""
BEGUN: Final = 5.0
"""Seconds after which no Allocate call is expected for a preference."""

_log = structlog.get_logger(__name__)


class Resources(Protocol):
    """The kubelet's device assignments."""

    async def holdings(self) -> tuple[Holding, ...]: ...


@dataclass(frozen=True, slots=True)
class Equipment:
    """The inputs of an allocation."""

    pods: Callable[[], Sequence[BoundPod]]
    """The unfinished pods of the node. Pods bound within the same second are in the order of the watch."""
    edits: Callable[[Sequence[Unit]], Edits]
    """The container edits for cards or MIG devices (`part` is the id of the slot). May raise CardError."""
    patience: float = 2.0
    """Seconds to wait for a pod that the watch has not delivered yet."""


@dataclass(frozen=True, slots=True)
class Dealt:
    """The devices of a container and the edits that make them available."""

    answer: Answer
    edits: Edits


@dataclass(frozen=True, slots=True)
class _Begun:
    """A preference that was returned to the kubelet, and when."""

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
        """The device assignments at the last GetPreferredAllocation."""
        self._allocated_at = float("-inf")

    def show(self, offer: Offer) -> None:
        """Replace the offered devices."""
        self._offer = offer

    async def holdings(self) -> tuple[Holding, ...]:
        """The assignments of the offered cards. Waits while an allocation is in progress."""
        while (wait := self._busy_for()) > 0:
            await self._clock.sleep(wait)
        return handed.known(await self._resources.holdings(), self._offer.cards)

    def _busy_for(self) -> float:
        now = self._clock.monotonic()
        expiry = max((pending.at + BEGUN for pending in self._begun.values()), default=now)
        return min(LOOK, expiry - now) if expiry > now else self._allocated_at + NOTED - now

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
            raise Refusal(f"cannot read device assignments from the kubelet: {error}") from error

    async def allocate(self, resource: str, ids: Collection[str]) -> Dealt:
        """Raises AllocationRefused: the pod fails and shows the message in its status."""
        scene, meant = await self._meant(resource, ids)
        answer = allotment.answer(resource, ids, scene, meant)
        if isinstance(answer, Refused):
            _log.warning(
                "allocation of devices refused", resource=resource, devices=len(ids), why=str(answer)
            )
            raise Refusal(f"cannot allocate {resource}: {answer}")
        try:
            edits = self._equipment.edits(answer.parts)
        except CardError as error:
            raise Refusal(f"cannot allocate {resource}: {error}") from error
        self._note(resource, ids, meant)
        return Dealt(answer, edits)

    async def _meant(self, resource: str, ids: Collection[str]) -> tuple[Scene, Preference | None]:
        """The pod and container for the devices: from the pending preference, or from an init container."""
        pending = self._begun.pop(resource, None)
        scene = self._scene(self._account)
        if pending is None:
            if (inherited := allotment.inherited(resource, ids, scene)) is not None:
                return scene, inherited
            scene = self._scene(await self._told())
        preference = pending.preference if pending is not None else None
        return scene, allotment.meant(resource, ids, scene, preference)

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
        self._given = tuple(given for given in self._given if given.uid in alive)
        return Scene(self._offer, pods, holdings, self._given)
