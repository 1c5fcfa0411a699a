"""Reads the labels of NFD and GPU Feature Discovery about the cards of a node.

Other programs write these labels, by rules that people edit, so labels can be missing, incomplete or wrong.
Nothing is guessed: an invalid label is ignored and reported in a sentence.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from croupier.core.cards import catalogue
from croupier.core.model import name_list
from croupier.core.model.gpu_card import GpuCard

DEVICE: Final = "gpu.deckhouse.io/device."
DRIVER: Final = "gpu.deckhouse.io/driver."
GPU: Final = "nvidia.com/gpu."
CUDA: Final = "nvidia.com/cuda."
MIG: Final = "nvidia.com/mig"
READ: Final = (DEVICE, DRIVER, GPU, CUDA, MIG)
"""Prefixes of the labels that are read."""
CLASSES: Final = frozenset({"0300", "0302"})
"""PCI classes of GPUs: VGA and 3D controllers. The audio function of a card has another class."""
SIGNS: Final = (f"{GPU}present", "feature.node.kubernetes.io/pci-10de.present")
"""Labels that say only that the node has cards."""
MAX_NUMBER: Final = (1 << 31) - 1

MigStrategy: TypeAlias = Literal["None", "Single", "Mixed"]

_STRATEGIES: Final[Mapping[str, MigStrategy]] = {"none": "None", "single": "Single", "mixed": "Mixed"}
_HEX: Final = re.compile(r"[0-9a-f]{4}")
_DEVICE: Final = re.compile(re.escape(DEVICE) + r"([0-9]{1,3})\.(vendor|device|class)")
_PROFILE: Final = re.compile(r"nvidia\.com/mig-([1-7]g\.[0-9]+gb(?:\.[a-z]+)*)\.(memory|multiprocessors)")


@dataclass(frozen=True, slots=True)
class ProfileFeatures:
    """A MIG profile that GPU Feature Discovery reports."""

    memory_mib: int = 0
    multiprocessors: int = 0


@dataclass(frozen=True, slots=True)
class NodeFeatureScan:
    """The merged NodeFeature objects of a node."""

    labels: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[Mapping[str, str], ...] | None = None
    """The attributes of every PCI device; None if no object lists devices."""


@dataclass(frozen=True, slots=True)
class GpuFeatures:
    cards: tuple[GpuCard, ...] = ()
    scanned: bool = False
    """The cards come from a scan of the whole bus, not from labels."""
    count: int | None = None
    product: str = ""
    memory_mib: int | None = None
    major: int | None = None
    minor: int | None = None
    mig_capable: bool | None = None
    strategy: MigStrategy | None = None
    profiles: Mapping[str, ProfileFeatures] = field(default_factory=dict)
    driver: str = ""
    cuda: str = ""
    toolkit: bool = False
    signs: tuple[str, ...] = ()
    """Those of `SIGNS` that are set."""
    wrong: tuple[str, ...] = ()
    """Invalid labels, as sentences."""
    missing: tuple[str, ...] = ()
    """Required labels that are missing."""

    @property
    def is_empty(self) -> bool:
        return not self.cards and not self.count and not self.signs

    @property
    def is_partitioned(self) -> bool:
        """The labels describe MIG devices instead of whole cards (strategy single), memory included."""
        return "-MIG-" in self.product


def read(labels: Mapping[str, str], scan: NodeFeatureScan | None = None) -> GpuFeatures:
    """Merge the labels of the node with its NodeFeature objects; the objects take precedence."""
    scan = scan or NodeFeatureScan()
    own, newer = _relevant(labels), _relevant(scan.labels)
    reader = _LabelReader({**own, **newer})
    reader.wrong += (
        f"NodeFeature says {key}={newer[key]}, the node's label says {own[key]}"
        for key in sorted(own.keys() & newer.keys())
        if own[key] != newer[key]
    )
    labelled = reader.cards()
    scanned = _scanned(scan.devices) if scan.devices is not None else None
    if scanned is not None and labelled and _models(scanned) != _models(labelled):
        lists = f"NodeFeature lists {_listed(scanned)}, the labels {DEVICE}* list {_listed(labelled)}"
        reader.wrong.append(lists)
    features = replace(
        reader.described(),
        cards=labelled if scanned is None else scanned,
        scanned=scanned is not None,
        signs=tuple(key for key in SIGNS if "true" in (labels.get(key), scan.labels.get(key))),
        wrong=tuple(reader.wrong),
    )
    return replace(features, missing=tuple(_missing(features)))


def _relevant(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key.startswith(READ)}


def _missing(found: GpuFeatures) -> Iterator[str]:
    if found.is_empty:
        return
    if not found.cards:
        yield f"{DEVICE}00.vendor, .device and .class (no source lists the cards)"
    for card in () if found.scanned else found.cards:
        parts = {"vendor": card.vendor, "device": card.device, "class": card.class_}
        yield from (f"{DEVICE}{card.index:02}.{part}" for part, value in parts.items() if not value)
    if found.cards and not found.scanned:
        indexes = {card.index for card in found.cards}
        gaps = (number for number in range(max(indexes)) if number not in indexes)
        yield from (f"{DEVICE}{number:02}.*" for number in gaps)
    described = {
        "gpu.count": found.count,
        "gpu.product": found.product or None,
        "gpu.memory": found.memory_mib,
        "gpu.compute.major": found.major,
        "gpu.compute.minor": found.minor,
        "mig.capable": found.mig_capable,
    }
    yield from (f"nvidia.com/{name}" for name, value in described.items() if value is None)


def _scanned(devices: Iterable[Mapping[str, str]]) -> tuple[GpuCard, ...]:
    """The NVIDIA GPUs among all devices of the bus, numbered in their order."""
    gpus = [
        device
        for device in devices
        if device.get("vendor", "").lower() == catalogue.NVIDIA and device.get("class", "") in CLASSES
    ]
    return tuple(
        GpuCard(index, vendor=catalogue.NVIDIA, device=gpu.get("device", "").lower(), class_=gpu["class"])
        for index, gpu in enumerate(gpus)
    )


def _models(cards: Iterable[GpuCard]) -> list[str]:
    return sorted(card.device for card in cards)


def _listed(cards: tuple[GpuCard, ...]) -> str:
    """`2 cards (2330, 2330)`."""
    devices = ", ".join(card.device or "?" for card in cards)
    return name_list.counted(len(cards), "card") + (f" ({devices})" if cards else "")


@dataclass(slots=True)
class _LabelReader:
    """Reads labels one by one and collects sentences about the invalid ones."""

    told: Mapping[str, str]
    wrong: list[str] = field(default_factory=list)

    def cards(self) -> tuple[GpuCard, ...]:
        """The cards that have labels, sorted by index."""
        parts: dict[int, dict[str, str]] = {}
        for key in sorted(self.told):
            if (match := _DEVICE.fullmatch(key)) is not None:
                parts.setdefault(int(match[1]), {})[match[2]] = self.hexadecimal(key)
        every = (
            GpuCard(
                index,
                vendor=part.get("vendor", ""),
                device=part.get("device", ""),
                class_=part.get("class", ""),
            )
            for index, part in sorted(parts.items())
        )
        return tuple(card for card in every if self.is_gpu(card))

    def is_gpu(self, card: GpuCard) -> bool:
        key = f"{DEVICE}{card.index:02}"
        if card.vendor not in ("", catalogue.NVIDIA):
            self.wrong.append(f"{key}.vendor is {card.vendor}; the vendor id of NVIDIA is {catalogue.NVIDIA}")
            return False
        if card.class_ not in ("", *CLASSES):
            self.wrong.append(f"{key}.class is {card.class_}; the class of a GPU is 0300 or 0302")
            return False
        return True

    def described(self) -> GpuFeatures:
        """The labels of GPU Feature Discovery about cards and driver."""
        told = self.told
        runtime = self.version(("runtime-version", "runtime"), ("major", "minor"))
        driver = self.version(("driver-version", "driver"), ("major", "minor", "revision", "rev"))
        return GpuFeatures(
            count=self.number(f"{GPU}count"),
            product=told.get(f"{GPU}product", ""),
            memory_mib=self.positive(f"{GPU}memory"),
            major=self.positive(f"{GPU}compute.major"),
            minor=self.number(f"{GPU}compute.minor"),
            mig_capable=self.flag(f"{MIG}.capable"),
            strategy=self.strategy(),
            profiles=self.profiles(),
            driver=told.get(f"{DRIVER}version") or driver,
            cuda=told.get(f"{DRIVER}cuda-version") or runtime,
            toolkit=told.get(f"{DRIVER}toolkit") == "true",
        )

    def hexadecimal(self, key: str) -> str:
        small = self.told[key].lower()
        if _HEX.fullmatch(small) is not None:
            return small
        self.wrong.append(f"{key} is {self.told[key]!r}, which is not four hexadecimal digits")
        return ""

    def number(self, key: str) -> int | None:
        if key not in self.told:
            return None
        value = self.told[key]
        if value.isascii() and value.isdigit() and int(value) <= MAX_NUMBER:
            return int(value)
        self.wrong.append(f"{key} is {value!r}, which is not a number")
        return None

    def positive(self, key: str) -> int | None:
        number = self.number(key)
        if number != 0:
            return number
        self.wrong.append(f"{key} is 0; it must be positive")
        return None

    def flag(self, key: str) -> bool | None:
        value = self.told.get(key)
        if value is None:
            return None
        if value in ("true", "false"):
            return value == "true"
        self.wrong.append(f"{key} is {value!r}, which is neither true nor false")
        return None

    def strategy(self) -> MigStrategy | None:
        value = self.told.get(f"{MIG}.strategy")
        if value is not None and value not in _STRATEGIES:
            self.wrong.append(f"{MIG}.strategy is {value!r}, which is not none, single or mixed")
        return _STRATEGIES.get(value or "")

    def profiles(self) -> Mapping[str, ProfileFeatures]:
        found: dict[str, dict[str, int]] = {}
        for key in sorted(self.told):
            if (match := _PROFILE.fullmatch(key)) is not None:
                size, _, extras = match[1].partition("gb")
                name = f"{size}gb+{extras.lstrip('.')}" if extras else f"{size}gb"
                found.setdefault(name, {})[match[2]] = self.number(key) or 0
        return {
            name: ProfileFeatures(values.get("memory", 0), values.get("multiprocessors", 0))
            for name, values in found.items()
        }

    def version(self, names: tuple[str, ...], parts: tuple[str, ...]) -> str:
        """A version such as `570.124.06`, from the full label or from its parts, under new or old names."""
        for name in names:
            if full := self.told.get(f"{CUDA}{name}.full"):
                return full
            keys = (f"{CUDA}{name}.{part}" for part in parts)
            if numbers := [self.told[key] for key in keys if key in self.told]:
                return ".".join(numbers)
        return ""
