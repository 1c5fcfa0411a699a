"""MIG through NVML: the supported profiles, the current MIG devices, and each step of repartitioning.

A MIG device is a GPU instance with a compute instance that fills it. A GPU instance without a compute
instance is the remainder of an interrupted step. It is unusable, so it is not reported, and it is removed if
it blocks a step.
"""

import ctypes
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pynvml  # type: ignore[import-untyped]  # it has no types

from croupier.core.model import mig
from croupier.core.model.mig import MigDevice, MigPlacement, MigProfile
from croupier.node.cards import nvml_driver as driver
from croupier.node.cards.card_driver import CardError
from croupier.node.cards.nvml_driver import Handle

_GIB: Final = 1024**3
_MIB: Final = 1024**2
_EIGHTHS: Final = 8
_MAX_INSTANCES: Final = 64
_COMPUTE_PROFILES: Final = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6}
"""Number of compute slices to the compute instance profile of this size."""
_EXTRAS: Final = {
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1: "+me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_REV1: "+me",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_4_SLICE_GFX: "+gfx",
    pynvml.NVML_GPU_INSTANCE_PROFILE_1_SLICE_ALL_ME: "+me.all",
    pynvml.NVML_GPU_INSTANCE_PROFILE_2_SLICE_ALL_ME: "+me.all",
}


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG device with the ids of its GPU instance and compute instance."""

    device: MigDevice
    gpu_instance: int
    compute_instance: int


def mode(card: Handle) -> bool | None:
    """Whether MIG mode is enabled. None if the card does not support MIG."""
    modes = driver.query(pynvml.nvmlDeviceGetMigMode, card)
    return None if modes is None else modes[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def kinds(card: Handle, memory_bytes: int) -> tuple[MigProfile, ...]:
    """The MIG profiles that the driver reports. Of two with the same name the first counts."""
    numbers = range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
    profiles = [_kind(card, number, memory_bytes) for number in numbers]
    named = {kind.name: kind for kind in reversed(profiles) if kind and mig.is_profile(kind.name)}
    return tuple(sorted(named.values(), key=lambda kind: (kind.compute_slices, kind.memory_mib, kind.name)))


def _kind(card: Handle, number: int, memory_bytes: int) -> MigProfile | None:
    info = driver.query(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, card, number)
    if info is None:
        return None
    places = _placements(card, info.id, info.instanceCount)
    if not places:
        return None
    return MigProfile(
        name=_name(info, number, memory_bytes),
        memory_slices=places[0].size,
        starts=tuple(sorted(place.start for place in places)),
        compute_slices=info.sliceCount,
        memory_mib=info.memorySizeMB,
        multiprocessors=info.multiprocessorCount,
        gpu_instance=info.id,
        compute_instance=_COMPUTE_PROFILES.get(info.sliceCount, 0),
        copy=info.copyEngineCount,
        encoder=info.encoderCount,
        decoder=info.decoderCount,
        ofa=info.ofaCount,
        most=info.instanceCount,
    )


def _placements(card: Handle, profile: int, most: int) -> list[pynvml.c_nvmlGpuInstancePlacement_t]:
    count = ctypes.c_uint(max(most, _MAX_INSTANCES))
    places = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    answer = driver.query(
        pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, card, profile, places, ctypes.byref(count)
    )
    return [] if answer is None else list(places[: count.value])


def _name(info: pynvml.c_nvmlGpuInstanceProfileInfo_v2_t, number: int, memory_bytes: int) -> str:
    """The name from the driver (`MIG 1g.10gb+me`), or built by the same rule if the driver has none."""
    name = str(info.name).removeprefix("MIG ").strip()
    if name:
        return name
    share = math.ceil(info.memorySizeMB * _MIB / memory_bytes * _EIGHTHS) / _EIGHTHS if memory_bytes else 0
    gigabytes = math.floor(share * math.ceil(memory_bytes / _GIB) + 0.5)
    return f"{info.sliceCount}g.{gigabytes}gb{_EXTRAS.get(number, '')}"


def instances(card: Handle, known: tuple[MigProfile, ...]) -> tuple[MigInstance, ...]:
    """The current MIG devices, sorted by their first slice: one for each usable GPU instance."""
    by_profile = {kind.gpu_instance: kind for kind in known}
    usable: dict[int, list[tuple[int, str]]] = {}
    for handle in mig_handles(card):
        number = pynvml.nvmlDeviceGetGpuInstanceId(handle)
        named = (pynvml.nvmlDeviceGetComputeInstanceId(handle), str(pynvml.nvmlDeviceGetUUID(handle)))
        usable.setdefault(number, []).append(named)
    devices = []
    for handle, info in _gpu_instances(card, known):
        if info.id in usable:
            compute, uuid = min(usable[info.id])
            profile = _profile(handle, by_profile[info.profileId], compute)
            piece = MigDevice(profile, info.placement.start, info.placement.size, uuid)
            devices.append(MigInstance(piece, info.id, compute))
    return tuple(sorted(devices, key=lambda instance: instance.device.start))


def _profile(gpu_instance: Handle, kind: MigProfile, compute: int) -> str:
    """`3g.40gb`, or `1c.3g.40gb` if the compute instance does not fill the GPU instance."""
    handle = pynvml.nvmlGpuInstanceGetComputeInstanceById(gpu_instance, compute)
    size = pynvml.nvmlComputeInstanceGetInfo(handle).placement.size
    return kind.name if size in (0, kind.compute_slices) else f"{size}c.{kind.name}"


def mig_handles(card: Handle) -> Iterator[Handle]:
    for index in range(driver.query(pynvml.nvmlDeviceGetMaxMigDeviceCount, card) or 0):
        handle = driver.query(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, card, index)
        if handle is not None:
            yield handle


def _gpu_instances(
    card: Handle, known: tuple[MigProfile, ...]
) -> Iterator[tuple[Handle, pynvml.c_nvmlGpuInstanceInfo_t]]:
    for kind in known:
        listed = _listed(
            pynvml.nvmlDeviceGetGpuInstances, card, kind.gpu_instance, pynvml.c_nvmlGpuInstance_t
        )
        for handle in listed:
            yield handle, pynvml.nvmlGpuInstanceGetInfo(handle)


def _compute_instances(gpu_instance: Handle) -> Iterator[Handle]:
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = _compute_profile(gpu_instance, number)
        if info is not None:
            call = pynvml.nvmlGpuInstanceGetComputeInstances
            yield from _listed(call, gpu_instance, info.id, pynvml.c_nvmlComputeInstance_t)


def _listed(call: Callable[..., object], parent: Handle, profile: int, kind: Any) -> list[Handle]:
    count = ctypes.c_uint(_MAX_INSTANCES)
    buffer = (kind * _MAX_INSTANCES)()
    if driver.query(call, parent, profile, buffer, ctypes.byref(count)) is None:
        return []
    return list(buffer[: count.value])


def _compute_profile(
    gpu_instance: Handle, number: int
) -> pynvml.c_nvmlComputeInstanceProfileInfo_v2_t | None:
    engines = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    return driver.query(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, gpu_instance, number, engines)


def set_mode(card: Handle, known: tuple[MigProfile, ...], *, on: bool) -> None:
    _remove_unusable(card, known, keep=frozenset())
    wanted = pynvml.NVML_DEVICE_MIG_ENABLE if on else pynvml.NVML_DEVICE_MIG_DISABLE
    activation = pynvml.nvmlDeviceSetMigMode(card, wanted)
    if activation != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(activation)
    if mode(card) != on:
        raise CardError(
            "the change of MIG mode needs a reset: run nvidia-smi --gpu-reset, or restart the node"
        )


def create(card: Handle, known: tuple[MigProfile, ...], placement: MigPlacement) -> str:
    kind = next((kind for kind in known if kind.name == placement.profile), None)
    if kind is None:
        raise CardError(f"the card has no MIG profile {placement.profile}")
    _remove_unusable(card, known, keep=frozenset(range(mig.MAX_DEVICES)) - frozenset(placement.slices))
    place = pynvml.c_nvmlGpuInstancePlacement_t(placement.start, placement.size)
    handle = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(card, kind.gpu_instance, ctypes.byref(place))
    try:
        pynvml.nvmlGpuInstanceCreateComputeInstance(handle, _full_profile(handle, kind).id)
    except pynvml.NVMLError:
        driver.query(pynvml.nvmlGpuInstanceDestroy, handle)
        raise
    number = pynvml.nvmlGpuInstanceGetInfo(handle).id
    for instance in instances(card, known):
        if instance.gpu_instance == number:
            return instance.device.uuid
    raise CardError(f"the driver created {placement.id} but does not list it")


def _full_profile(gpu_instance: Handle, kind: MigProfile) -> pynvml.c_nvmlComputeInstanceProfileInfo_v2_t:
    """The compute instance profile that fills the GPU instance."""
    numbers = range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
    profiles = [info for number in numbers if (info := _compute_profile(gpu_instance, number)) is not None]
    whole = [info for info in profiles if info.sliceCount == kind.compute_slices]
    if not whole:
        raise CardError(f"the driver offers no compute instance that fills {kind.name}")
    return max(whole, key=lambda info: info.multiprocessorCount)


def destroy(card: Handle, known: tuple[MigProfile, ...], uuid: str) -> None:
    numbers = {instance.device.uuid: instance.gpu_instance for instance in instances(card, known)}
    number = numbers.get(uuid)
    if number is None:
        raise CardError(f"the card has no MIG device {uuid}")
    gpu_instance = pynvml.nvmlDeviceGetGpuInstanceById(card, number)
    for handle in _compute_instances(gpu_instance):
        pynvml.nvmlComputeInstanceDestroy(handle)
    pynvml.nvmlGpuInstanceDestroy(gpu_instance)


def _remove_unusable(card: Handle, known: tuple[MigProfile, ...], *, keep: frozenset[int]) -> None:
    """Remove unusable GPU instances, except those entirely within the slices to keep."""
    usable = {instance.gpu_instance for instance in instances(card, known)}
    for handle, info in list(_gpu_instances(card, known)):
        taken = range(info.placement.start, info.placement.start + info.placement.size)
        if info.id not in usable and not keep.issuperset(taken):
            pynvml.nvmlGpuInstanceDestroy(handle)
