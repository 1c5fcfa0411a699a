"""The driver's library: loading it, asking it, and its errors as sentences.

nvidia-ml-py loads `libnvidia-ml.so.1` by that name. A library loaded before under the same name is the one
it gets, which is how another path is used without touching nvidia-ml-py.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import pynvml  # type: ignore[import-untyped]  # it has no types, here and in the other files about NVML

from croupier.node.cards.cards import CardError

T = TypeVar("T")

Handle: TypeAlias = Any
"""What the library calls a card, a MIG device or an instance by."""

_UNTOLD: Final = frozenset(
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
_ENDED: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    }
)
_HINTS: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 is not found; install the NVIDIA driver, or say where it is"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded; install or load it",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver was changed while its library was loaded; start the agent again"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "the driver does not permit it; the agent must run as root",
    pynvml.NVML_ERROR_IN_USE: "it is in use by another process; end that, or drain the card",
}


def start(library: str | None) -> None:
    try:
        if library:
            ctypes.CDLL(library)
        pynvml.nvmlInit()
    except OSError as error:
        raise CardError(f"the NVIDIA driver's library cannot be loaded: {error}") from error


def stop() -> None:
    pynvml.nvmlShutdown()


def ask(call: Callable[..., T], *arguments: object) -> T | None:
    """The answer, or None where this card or this driver has none."""
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _UNTOLD:
            return None
        raise


def has_ended(error: pynvml.NVMLError) -> bool:
    """The library must be started again before anything else can be asked."""
    return error.value in _ENDED


def sentence(error: pynvml.NVMLError) -> str:
    return _HINTS.get(error.value) or f"the driver says: {str(error).rstrip('.')}"


def driver_version() -> str:
    return str(pynvml.nvmlSystemGetDriverVersion())


def cuda_version() -> str:
    """`12.8`, from 12080."""
    number = ask(pynvml.nvmlSystemGetCudaDriverVersion) or 0
    return f"{number // 1000}.{number % 1000 // 10}" if number else ""
