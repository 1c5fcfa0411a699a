"""The GPU labels of a node, from its agent's report.

They are the labels that GPU Feature Discovery and the rules for NFD use, so that node selectors work with
either. If one of those runs, its labels stay unchanged: the agent applies labels without force.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from croupier.api.gpu.agent_report import AgentReport, CardReport
from croupier.core.pods import device_variables, request_parser

GPU_PREFIX: Final = "nvidia.com/gpu"
CUDA_PREFIX: Final = "nvidia.com/cuda"
MIG_PREFIX: Final = "nvidia.com/mig"
CROUPIER_PREFIX: Final = "gpu.deckhouse.io"
MIG_STATE: Final = f"{MIG_PREFIX}.config.state"
"""The progress of the layout in run.ai/mig.config: pending, success or failed."""
MIG_HASH: Final = f"{MIG_PREFIX}.config.hash"
"""The hash of the annotation that the state refers to, so that readers can detect an outdated state."""

_MAX_LABEL: Final = 63
_INVALID: Final = re.compile(r"[^A-Za-z0-9._-]+")


def labels(report: AgentReport, mig_state: str = "", mig_text: str = "") -> dict[str, str]:
    """The labels. Empty if the node has no cards."""
    if not report.cards:
        return {}
    cards = sorted(report.cards, key=lambda card: card.index)
    labels = {
        **dict(_of_model(cards[0], len(cards))),
        **dict(_of_driver(report)),
        **dict(_of_runtime(report)),
        **dict(_of_slots(cards)),
        **dict(_of_devices(cards)),
    }
    if mig_state:
        labels[MIG_STATE] = mig_state
        labels[MIG_HASH] = hashlib.sha256(mig_text.encode()).hexdigest()[:16]
    return {key: label_value(text) for key, text in labels.items()}


def label_value(text: str) -> str:
    """A valid label value: no blanks, at most 63 characters."""
    return _INVALID.sub("-", text).strip("-_.")[:_MAX_LABEL].strip("-_.")


def _of_model(card: CardReport, count: int) -> Iterator[tuple[str, str]]:
    """Labels of the first card. The models of a mixed node are only in its GPUDevices."""
    yield f"{GPU_PREFIX}.present", "true"
    yield f"{GPU_PREFIX}.count", str(count)
    yield f"{GPU_PREFIX}.replicas", "1"
    yield f"{GPU_PREFIX}.product", card.product
    yield f"{GPU_PREFIX}.memory", str(card.memory_mib)
    yield f"{GPU_PREFIX}.compute.major", str(card.compute_major)
    yield f"{GPU_PREFIX}.compute.minor", str(card.compute_minor)
    yield f"{MIG_PREFIX}.capable", str(card.mig_capable).lower()
    if card.mig_capable:
        yield f"{MIG_PREFIX}.strategy", "mixed"


def _of_driver(report: AgentReport) -> Iterator[tuple[str, str]]:
    if report.driver:
        yield f"{CROUPIER_PREFIX}/driver.version", report.driver
        yield from _version(f"{CUDA_PREFIX}.driver-version", report.driver, ("major", "minor", "revision"))
    if report.cuda:
        yield f"{CROUPIER_PREFIX}/driver.cuda-version", report.cuda
        yield from _version(f"{CUDA_PREFIX}.runtime-version", report.cuda, ("major", "minor"))


def _of_runtime(report: AgentReport) -> Iterator[tuple[str, str]]:
    if report.nvidia_default is not None:
        yield device_variables.RUNTIME_LABEL, "nvidia" if report.nvidia_default else "other"
    if report.accepts_variable is not None:
        yield device_variables.ACCEPTS_LABEL, "all" if report.accepts_variable else "privileged"


def _version(key: str, text: str, parts: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    yield f"{key}.full", text
    yield from ((f"{key}.{part}", number) for part, number in zip(parts, text.split("."), strict=False))


def _of_slots(cards: Iterable[CardReport]) -> Iterator[tuple[str, str]]:
    """Labels of the MIG devices of all cards."""
    counts = Counter(slot.profile for card in cards for slot in card.cut.slots)
    types = {mig_type.name: mig_type for card in cards for mig_type in card.types}
    for profile, count in sorted(counts.items()):
        key = request_parser.mig_resource(profile)
        yield f"{key}.count", str(count)
        if (kind := types.get(profile)) is not None:
            yield f"{key}.memory", str(kind.memory_mib)
            yield f"{key}.multiprocessors", str(kind.multiprocessors)


def _of_devices(cards: Iterable[CardReport]) -> Iterator[tuple[str, str]]:
    for card in cards:
        key = f"{CROUPIER_PREFIX}/device.{card.index:02}"
        yield f"{key}.vendor", card.vendor
        yield f"{key}.device", card.device
        yield f"{key}.class", card.class_
