"""Answers the kubelet's calls GetPreferredAllocation and Allocate.

The decisions are made in core/nodes/device_allocation.py; this module collects the inputs. The kubelet may
know a pod shortly before the watch delivers it, so a call for an unknown pod waits for it. The wait is short,
because the kubelet admits one pod after the other and gives Allocate no deadline.

The kubelet's device assignments are listed during GetPreferredAllocation, not during Allocate. In between the
kubelet has taken the devices but has not yet recorded their pod, and a List call that finds a finished pod
would make it forget them and allocate them twice. So List calls wait until an allocation in progress is over.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from croupier.core.model.refusal import Refusal
from croupier.core.nodes import device_allocation, kubelet_assignments
from croupier.core.nodes.device_allocation import (
    AllocationInputs,
    ContainerAllocation,
    PastAllocation,
    PreferenceRequest,
    PreferredDevices,
)
from croupier.core.nodes.kubelet_assignments import BoundPod, KubeletAssignment
from croupier.core.nodes.plugin_devices import DeviceUnit, ServedResources
from croupier.kube.client.clock import Clock, SystemClock
from croupier.node.cards.card_driver import CardError, ContainerEdits
from croupier.node.kubelet.grpc_calls import AllocationRefused, KubeletError
from croupier.node.mps.share_enforcer import AllocatedDevices

POLL_INTERVAL: Final = 0.02
"""Seconds between two attempts to find the pod."""
CHECKPOINT_DELAY: Final = 0.2
"""Seconds after which the kubelet has certainly recorded an allocation."""
PREFERENCE_TIMEOUT: Final = 5.0
"""Seconds after which no Allocate call is expected for a preference."""

_log = structlog.get_logger(__name__)


class DeviceAssignments(Protocol):
    """The kubelet's device assignments."""

    async def holdings(self) -> tuple[KubeletAssignment, ...]: ...


@dataclass(frozen=True, slots=True)
class AllocatorInputs:
    """The inputs of an allocation."""

    pods: Callable[[], Sequence[BoundPod]]
    """The unfinished pods of the node. Pods bound within the same second are in the order of the watch."""
    edits: Callable[[Sequence[DeviceUnit]], ContainerEdits]
    """The container edits for cards or MIG devices (`part` is the id of the slot). May raise CardError."""
    pod_timeout: float = 2.0
    """Seconds to wait for a pod that the watch has not delivered yet."""
    enforce: Callable[[AllocatedDevices], Awaitable[ContainerEdits]] | None = None
    """The container edits that enforce shares. May take seconds, and may raise CardError."""


@dataclass(frozen=True, slots=True)
class AllocateResult:
    """The devices of a container and the edits that make them available."""

    answer: ContainerAllocation
    edits: ContainerEdits


@dataclass(frozen=True, slots=True)
class _PendingPreference:
    """A preference that was returned to the kubelet, and when."""

    preference: PreferredDevices
    at: float


class Allocator:
    def __init__(
        self, resources: DeviceAssignments, equipment: AllocatorInputs, clock: Clock | None = None
    ) -> None:
        self._resources = resources
        self._inputs_source = equipment
        self._clock = clock or SystemClock()
        self._offer = ServedResources()
        self._allocated: tuple[PastAllocation, ...] = ()
        self._pending: dict[str, _PendingPreference] = {}
        self._last_assignments: tuple[KubeletAssignment, ...] = ()
        """The device assignments at the last GetPreferredAllocation."""
        self._allocated_at = float("-inf")
        self._waiting = 0
        """The number of allocations that wait for the enforcement of a share."""

    def show(self, offer: ServedResources) -> None:
        """Replace the offered devices."""
        self._offer = offer

    async def holdings(self) -> tuple[KubeletAssignment, ...]:
        """The assignments of the offered cards. Waits while an allocation is in progress."""
        while (wait := self._busy_for()) > 0:
            await self._clock.sleep(wait)
        return kubelet_assignments.of_known_cards(await self._resources.holdings(), self._offer.cards)

    def _busy_for(self) -> float:
        now = self._clock.monotonic()
        if self._waiting:
            return POLL_INTERVAL
        expiry = max((pending.at + PREFERENCE_TIMEOUT for pending in self._pending.values()), default=now)
        return (
            min(POLL_INTERVAL, expiry - now) if expiry > now else self._allocated_at + CHECKPOINT_DELAY - now
        )

    async def prefer(self, asked: PreferenceRequest) -> tuple[str, ...]:
        self._last_assignments = await self._assignments()
        patient_until = self._clock.monotonic() + self._inputs_source.pod_timeout
        preference = device_allocation.preferred(asked, self._inputs(self._last_assignments))
        while preference.pod is None and self._clock.monotonic() < patient_until:
            await self._clock.sleep(POLL_INTERVAL)
            preference = device_allocation.preferred(asked, self._inputs(self._last_assignments))
        self._pending[asked.resource] = _PendingPreference(preference, self._clock.monotonic())
        return preference.ids

    async def _assignments(self) -> tuple[KubeletAssignment, ...]:
        try:
            return kubelet_assignments.of_known_cards(await self._resources.holdings(), self._offer.cards)
        except KubeletError as error:
            raise AllocationRefused(f"cannot read device assignments from the kubelet: {error}") from error

    async def allocate(self, resource: str, ids: Collection[str]) -> AllocateResult:
        """Raises AllocationRefused: the pod fails and shows the message in its status."""
        scene, meant = await self._intended(resource, ids)
        answer = device_allocation.allocate(resource, ids, scene, meant)
        if isinstance(answer, Refusal):
            _log.warning(
                f"{len(ids)} devices of {resource} were refused to a pod: {answer}",
                resource=resource,
                devices=len(ids),
            )
            raise AllocationRefused(f"cannot allocate {resource}: {answer}")
        try:
            edits = self._inputs_source.edits(answer.parts)
            if self._inputs_source.enforce is not None:
                uid = meant.pod.uid if meant is not None and meant.pod is not None else ""
                enforced = self._inputs_source.enforce(AllocatedDevices(uid, tuple(sorted(ids))))
                edits = edits.with_more(await self._in_progress(enforced))
        except CardError as error:
            raise AllocationRefused(f"cannot allocate {resource}: {error}") from error
        self._record(resource, ids, meant)
        return AllocateResult(answer, edits)

    async def _in_progress(self, work: Awaitable[ContainerEdits]) -> ContainerEdits:
        """Device assignments are not listed while an allocation waits."""
        self._waiting += 1
        try:
            return await work
        finally:
            self._waiting -= 1
            self._allocated_at = self._clock.monotonic()

    async def _intended(
        self, resource: str, ids: Collection[str]
    ) -> tuple[AllocationInputs, PreferredDevices | None]:
        """The pod and container for the devices: from the pending preference, or from an init container."""
        pending = self._pending.pop(resource, None)
        scene = self._inputs(self._last_assignments)
        if pending is None:
            if (inherited := device_allocation.reused_devices(resource, ids, scene)) is not None:
                return scene, inherited
            scene = self._inputs(await self._assignments())
        preference = pending.preference if pending is not None else None
        return scene, device_allocation.infer_owner(resource, ids, scene, preference)

    def _record(self, resource: str, ids: Iterable[str], meant: PreferredDevices | None) -> None:
        self._allocated_at = self._clock.monotonic()
        if meant is not None and meant.pod is not None:
            pod = meant.pod
            self._allocated = (
                *self._allocated,
                PastAllocation(pod.key, pod.uid, meant.container, resource, tuple(sorted(ids))),
            )

    def _inputs(self, holdings: tuple[KubeletAssignment, ...]) -> AllocationInputs:
        pods = kubelet_assignments.admission_order(self._inputs_source.pods())
        alive = {pod.uid for pod in pods}
        self._allocated = tuple(given for given in self._allocated if given.uid in alive)
        return AllocationInputs(self._offer, pods, holdings, self._allocated)
