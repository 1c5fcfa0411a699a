"""The specification of simulated cards: `H100:8`, or a YAML file for mixed models.

driver: 570.124.06
cards:
- {model: SIM-70GB, count: 4}
- {model: A30, count: 2, cut: "1g.6gb:2,2g.12gb:1"}
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from croupier.core.cards import catalogue
from croupier.core.cards.catalogue import CardModel, UnknownModel
from croupier.core.model import mig
from croupier.core.model.card import MAX_CARDS
from croupier.core.model.mig import Layout, MigPlacement
from croupier.core.model.refusal import Refusal
from croupier.node.cards.card_driver import CardError

DRIVER: Final = "570.124.06"
CUDA: Final = "12.8"

_MODEL_COUNT: Final = re.compile(r"(?P<model>[A-Za-z0-9-]+):(?P<count>[0-9]{1,3})")


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    count: Annotated[int, msgspec.Meta(ge=1, le=MAX_CARDS)] = 1
    cut: str = "whole"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    cards: tuple[_Entry, ...]
    driver: str = DRIVER
    cuda: str = CUDA
    device_node: str = ""


@dataclass(frozen=True, slots=True)
class SimulatedCardSpec:
    """One card in its initial state."""

    model: CardModel
    layout: Layout = mig.WHOLE

    @property
    def pieces(self) -> tuple[MigPlacement, ...]:
        placed = mig.place(self.model.kinds, self.layout)
        return () if isinstance(placed, Refusal) else placed


@dataclass(frozen=True, slots=True)
class SimulatedNodeSpec:
    cards: tuple[SimulatedCardSpec, ...]
    driver: str = DRIVER
    cuda: str = CUDA
    device_node: str = ""
    """The host device that containers get for every card, for example /dev/null. None if unset."""


def read(text: str) -> SimulatedNodeSpec:
    """Parse `MODEL:COUNT` or read the file at this path."""
    match = _MODEL_COUNT.fullmatch(text)
    if match is None:
        return _from_file(Path(text))
    return _node_spec(_File((_Entry(match["model"], int(match["count"])),)), f"simulated cards {text}")


def _from_file(path: Path) -> SimulatedNodeSpec:
    try:
        written = msgspec.yaml.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise CardError(
            f"simulated cards: cannot read {path} ({error.strerror}); "
            "give MODEL:COUNT, such as H100:8, or the path of a YAML file"
        ) from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise CardError(f"simulated cards: {path} is invalid: {error}") from error
    return _node_spec(written, f"simulated cards of {path}")


def _node_spec(written: _File, where: str) -> SimulatedNodeSpec:
    cards = tuple(card for entry in written.cards for card in _card_specs(entry, where))
    if not 1 <= len(cards) <= MAX_CARDS:
        raise CardError(f"{where}: a node can have 1 to {MAX_CARDS} cards, not {len(cards)}")
    return SimulatedNodeSpec(cards, written.driver, written.cuda, written.device_node)


def _card_specs(entry: _Entry, where: str) -> tuple[SimulatedCardSpec, ...]:
    try:
        model = catalogue.find(entry.model)
    except UnknownModel as unknown:
        raise CardError(f"{where}: {unknown}") from unknown
    layout = mig.parse(entry.cut)
    placed = layout if isinstance(layout, Refusal) else mig.place(model.kinds, layout)
    if isinstance(layout, Refusal) or isinstance(placed, Refusal):
        raise CardError(f"{where}: {model.name}: {placed}")
    return (SimulatedCardSpec(model, layout),) * entry.count
