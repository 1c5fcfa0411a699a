"""Places MIG devices on a card.

Counting slices is not enough: each profile may start only at certain memory slices, so devices that fit by
number may still not fit together. A card has at most eight memory slices, so the search tries every
placement and its negative answers are exact.
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from croupier.core.model import name_list
from croupier.core.model.refusal import Refusal

Layout: TypeAlias = tuple[tuple[str, int], ...]
"""Profiles with their number, in the canonical form: each profile once, largest first, no zeros."""

WHOLE: Final[Layout] = ()
"""The card is not partitioned."""
WHOLE_TEXT: Final = "whole"
COMPUTE_SLICES: Final = 7
"""Compute slices of a card whose profiles are not known. An A30 has 4, all other cards have 7."""
MAX_DEVICES: Final = 8
"""The largest number of MIG devices on one card."""

_Placements: TypeAlias = tuple["MigPlacement", ...]
PROFILE: Final = re.compile(
    r"(?:(?P<instance>[1-7])c\.)?(?P<slices>[1-7])g\.(?P<memory>[1-9][0-9]*)gb(?:\+(?P<extras>[a-z.]+))?"
)
"""The name of a profile: slices of the compute instance, compute slices, gigabytes and extras."""
_LAYOUT_PART: Final = re.compile(r"([^:,]+):([1-9][0-9]?)")


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One MIG profile of a card, as its driver reports it."""

    name: str
    memory_slices: int
    starts: tuple[int, ...]
    """Memory slices at which a device may start on an empty card."""
    compute_slices: int
    memory_mib: int = 0
    multiprocessors: int = 0
    gpu_instance: int = 0
    """The driver's id of the GPU instance profile."""
    compute_instance: int = 0
    """The driver's id of the compute instance profile that fills the GPU instance."""
    copy: int = 0
    encoder: int = 0
    decoder: int = 0
    ofa: int = 0
    most: int = MAX_DEVICES
    """How many devices of this profile one card can have."""


@dataclass(frozen=True, slots=True)
class MigPlacement:
    """One MIG device at its memory slices."""

    profile: str
    start: int
    size: int

    @property
    def id(self) -> str:
        """The id of the device in the ledger, such as `1g.10gb-0`."""
        return f"{self.profile}-{self.start}"

    @property
    def slices(self) -> range:
        return range(self.start, self.start + self.size)


@dataclass(frozen=True, slots=True)
class MigDevice:
    """One MIG device of a card."""

    profile: str
    start: int
    size: int
    uuid: str = ""

    @property
    def placement(self) -> MigPlacement:
        return MigPlacement(self.profile, self.start, self.size)

    @property
    def id(self) -> str:
        """The id of the slot in the ledger, for example `1g.10gb-0`."""
        return self.placement.id


@dataclass(frozen=True, slots=True)
class _FreeSlices:
    """The free slices of a card."""

    memory: frozenset[int]
    compute: int


def canonical(counts: Iterable[tuple[str, int]]) -> Layout:
    """The canonical form of a layout."""
    total: Counter[str] = Counter()
    for profile, number in counts:
        total[profile] += number
    return tuple(sorted(((p, n) for p, n in total.items() if n > 0), key=_largest_first))


def layout_of(profiles: Iterable[str]) -> Layout:
    """The layout of a list of profiles."""
    return canonical((profile, 1) for profile in profiles)


def _largest_first(entry: tuple[str, int]) -> tuple[int, int, bool, str]:
    compute, memory = _size(entry[0])
    return -compute, -memory, "+" not in entry[0], entry[0]


def _size(profile: str) -> tuple[int, int]:
    """Compute slices and gigabytes in the name of a profile."""
    match = PROFILE.fullmatch(profile)
    return (int(match["slices"]), int(match["memory"])) if match else (0, 0)


def compute_slices(profile: str) -> int:
    """The compute slices of a profile; 0 if it is none."""
    return _size(profile)[0]


def is_profile(name: str) -> bool:
    return PROFILE.fullmatch(name) is not None


def layout_text(layout: Layout) -> str:
    """The text of a layout such as `2g.20gb:2,3g.30gb:1`, smallest first; `whole` if not partitioned."""
    return ",".join(f"{profile}:{number}" for profile, number in reversed(layout)) or WHOLE_TEXT


def parse(text: str) -> Layout | Refusal:
    """Parse the text that `layout_text` writes."""
    if text == WHOLE_TEXT:
        return WHOLE
    parts = [_LAYOUT_PART.fullmatch(part) for part in text.split(",")]
    counts = [(part[1], int(part[2])) for part in parts if part is not None and is_profile(part[1])]
    if len(counts) < len(parts) or sum(number for _, number in counts) > MAX_DEVICES:
        return Refusal(
            f"{name_list.quoted(text)} is not a MIG layout; "
            f"use one such as 2g.20gb:2,3g.30gb:1, or {WHOLE_TEXT}"
        )
    return canonical(counts)


def fill(kinds: Sequence[MigProfile], profile: str) -> Layout | Refusal:
    """The layout with as many devices of one profile as fit on an empty card."""
    most = max((kind.most for kind in kinds if kind.name == profile), default=1)
    for number in range(min(most, MAX_DEVICES), 1, -1):
        if not isinstance(place(kinds, ((profile, number),)), Refusal):
            return ((profile, number),)
    single = place(kinds, ((profile, 1),))
    return single if isinstance(single, Refusal) else ((profile, 1),)


def max_devices(kinds: Sequence[MigProfile], profile: str) -> int:
    """How many devices of one profile fit on an empty card."""
    filled = fill(kinds, profile)
    return 0 if isinstance(filled, Refusal) else sum(number for _, number in filled)


def place(kinds: Sequence[MigProfile], layout: Layout) -> tuple[MigPlacement, ...] | Refusal:
    """The placement of each device of the layout on an empty card, in the order of slices."""
    if not layout:
        return ()
    by_name = {kind.name: kind for kind in kinds}
    if (refused := _impossible(by_name, layout)) is not None:
        return refused
    wanted = [by_name[profile] for profile, number in layout for _ in range(number)]
    wanted.sort(key=lambda kind: (-kind.memory_slices, len(kind.starts), kind.name))
    pieces = next(_placements(wanted, _empty(kinds)), None)
    if pieces is None:
        return Refusal(f"{layout_text(layout)} does not fit on one card: {_places(by_name, layout)}")
    return tuple(sorted(pieces, key=lambda piece: piece.start))


def _empty(kinds: Iterable[MigProfile]) -> _FreeSlices:
    listed = [kind for kind in kinds if kind.starts]
    end = max((max(kind.starts) + kind.memory_slices for kind in listed), default=0)
    return _FreeSlices(frozenset(range(end)), max((kind.compute_slices for kind in listed), default=0))


def _impossible(kinds: Mapping[str, MigProfile], layout: Layout) -> Refusal | None:
    """The reason why the layout cannot fit, if it is known without trying placements."""
    if not kinds:
        return Refusal("this card model does not support MIG")
    for profile, number in layout:
        if profile not in kinds:
            return Refusal(
                f"the card has no MIG profile {name_list.quoted(profile)}; {_known_profiles(kinds, profile)}"
            )
        most = min(kinds[profile].most, MAX_DEVICES)
        if number > most:
            return Refusal(f"a card can have at most {most} of {profile}, not {number}")
    room = _empty(kinds.values())
    compute = sum(kinds[profile].compute_slices * number for profile, number in layout)
    if compute > room.compute:
        return Refusal(f"{layout_text(layout)} needs {compute} compute slices; the card has {room.compute}")
    memory = sum(kinds[profile].memory_slices * number for profile, number in layout)
    if memory > len(room.memory):
        return Refusal(f"{layout_text(layout)} needs {memory} memory slices; the card has {len(room.memory)}")
    return None


def _known_profiles(kinds: Mapping[str, MigProfile], profile: str) -> str:
    close = difflib.get_close_matches(profile, kinds, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}known: {', '.join(name for name, _ in reversed(layout_of(kinds)))}"


def _places(kinds: Mapping[str, MigProfile], layout: Layout) -> str:
    """`3g.40gb takes 4 memory slices from 0 or 4`, for each profile."""
    texts = []
    for kind in (kinds[profile] for profile, _ in reversed(layout)):
        slices = name_list.counted(kind.memory_slices, "memory slice")
        texts.append(f"{kind.name} takes {slices} from {_listed(kind.starts)}")
    return "; ".join(texts)


def _listed(numbers: Sequence[int]) -> str:
    words = [str(number) for number in numbers]
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def _placements(
    wanted: Sequence[MigProfile], room: _FreeSlices, last: MigPlacement | None = None
) -> Iterator[_Placements]:
    """Every placement; devices of one profile only in rising order, because they are interchangeable."""
    if not wanted:
        yield ()
        return
    kind, rest = wanted[0], wanted[1:]
    beyond = last.start if last is not None and last.profile == kind.name else -1
    for start in kind.starts:
        piece = MigPlacement(kind.name, start, kind.memory_slices)
        if start <= beyond or not room.memory.issuperset(piece.slices) or room.compute < kind.compute_slices:
            continue
        left = _FreeSlices(room.memory.difference(piece.slices), room.compute - kind.compute_slices)
        for others in _placements(rest, left, piece):
            yield (piece, *others)
