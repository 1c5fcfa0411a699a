"""The processes that run on a card, from NVML: compute, graphics, and clients of MPS.

A partitioned card is asked itself and by its MIG devices, because drivers differ in which of them answers.
"""

from collections.abc import Iterator

import pynvml  # type: ignore[import-untyped]  # it has no types

from croupier.node.cards import nvml_driver as driver
from croupier.node.cards import nvml_mig
from croupier.node.cards.nvml_driver import Handle


def pids(card: Handle) -> set[int] | None:
    """The ids of the processes in the agent's PID namespace. None if the driver cannot tell."""
    answers = [answer for handle in (card, *nvml_mig.mig_handles(card)) for answer in _lists(handle)]
    if not answers:
        return None
    return {process.pid for processes in answers for process in processes}


def _lists(handle: Handle) -> Iterator[list[pynvml.c_nvmlProcessInfo_t]]:
    for call in (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
    ):
        if (processes := driver.query(call, handle)) is not None:
            yield processes
