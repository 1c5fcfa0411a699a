"""Loading NVML, calling it, and describing its errors.

nvidia-ml-py loads `libnvidia-ml.so.1` by that name. If a library with the same name was loaded before, it
gets that one, so another path can be used without changing nvidia-ml-py.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import pynvml  # type: ignore[import-untyped]  # it has no types, here and in the other files about NVML

from croupier.node.cards.card_driver import CardError

T = TypeVar("T")

Handle: TypeAlias = Any
"""NVML's handle of a card, a MIG device or an instance."""

_UNAVAILABLE: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_INVALID_STATE,
    }
)
_RESTART_NEEDED: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    }
)
_HINTS: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 was not found; install the NVIDIA driver, or give its path with --nvml"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded; install or load it",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver was replaced while its library was loaded; restart the agent"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "the driver does not permit it; the agent must run as root",
    pynvml.NVML_ERROR_IN_USE: "the card is in use by another process; stop the process, or drain the card",
}


def start(library: str | None) -> None:
    try:
        if library:
            ctypes.CDLL(library)
        pynvml.nvmlInit()
    except OSError as error:
        raise CardError(f"cannot load the library of the NVIDIA driver: {error}") from error


def stop() -> None:
    pynvml.nvmlShutdown()


def query(call: Callable[..., T], *arguments: object) -> T | None:
    """The result of the call, or None if the card or the driver does not support it."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _UNAVAILABLE:
            return None
        raise


def needs_restart(error: pynvml.NVMLError) -> bool:
    """Whether NVML must be initialized again before the next call."""
    return error.value in _RESTART_NEEDED


def describe(error: pynvml.NVMLError) -> str:
    return _HINTS.get(error.value) or f"the driver reports: {str(error).rstrip('.')}"


def driver_version() -> str:
    return str(pynvml.nvmlSystemGetDriverVersion())


def cuda_version() -> str:
    """For example `12.8`, which the driver reports as 12080."""
    number = query(pynvml.nvmlSystemGetCudaDriverVersion) or 0
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""
