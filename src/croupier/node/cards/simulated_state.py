"""The state of simulated cards. A file keeps it across restarts of the agent."""

import uuid
from pathlib import Path

import msgspec

from croupier.core.model.mig import MigDevice, MigPlacement
from croupier.node.cards import state_file
from croupier.node.cards.card_driver import CardError
from croupier.node.cards.simulated_spec import SimulatedCardSpec, SimulatedNodeSpec

_UUID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "simulated.croupier")


class SimulatedCardState(msgspec.Struct, frozen=True):
    """The state of one card."""

    address: str
    model: str
    mig_enabled: bool = False
    slots: tuple[MigDevice, ...] = ()
    made: int = 0
    """The number of MIG devices created so far, which makes their UUIDs unique."""
    drifted: str = ""
    """The last simulated change from outside."""


def address(number: int) -> str:
    """Every card has its own PCI bus."""
    return f"0000:{0x10 + number:02x}:00.0"


def card_uuid(node: str, where: str, board: int = 0) -> str:
    return f"GPU-{uuid.uuid5(_UUID_NAMESPACE, f'{node}/{where}/{board}')}"


def with_mig_device(
    node: str, card: SimulatedCardState, placement: MigPlacement
) -> tuple[SimulatedCardState, str]:
    """The card with an additional MIG device, and its UUID."""
    name = f"MIG-{uuid.uuid5(_UUID_NAMESPACE, f'{node}/{card.address}/mig/{card.made}')}"
    slots = (*card.slots, MigDevice(placement.profile, placement.start, placement.size, name))
    ordered = tuple(sorted(slots, key=lambda slot: slot.start))
    return msgspec.structs.replace(card, slots=ordered, made=card.made + 1), name


def repartition(node: str, card: SimulatedCardState, pieces: tuple[MigPlacement, ...]) -> SimulatedCardState:
    """The card with exactly these MIG devices."""
    card = msgspec.structs.replace(card, mig_enabled=bool(pieces), slots=())
    for piece in pieces:
        card, _ = with_mig_device(node, card, piece)
    return card


class SimulatedState:
    """The cards by address, in the order of the specification."""

    def __init__(self, node: str, plan: SimulatedNodeSpec, path: Path | None) -> None:
        known = {card.address: card for card in _read(path)}
        self._path = path
        self.cards: dict[str, SimulatedCardState] = {}
        for number, planned in enumerate(plan.cards):
            where = address(number)
            old = known.get(where)
            same = old is not None and old.model == planned.model.name
            self.cards[where] = old if old is not None and same else _initial(node, where, planned)

    def put(self, card: SimulatedCardState) -> None:
        self.cards[card.address] = card
        if self._path is not None:
            state_file.replace(self._path, {"cards": msgspec.to_builtins(tuple(self.cards.values()))})


def _initial(node: str, where: str, planned: SimulatedCardSpec) -> SimulatedCardState:
    return repartition(node, SimulatedCardState(where, planned.model.name), planned.pieces)


class _File(msgspec.Struct, frozen=True):
    cards: tuple[SimulatedCardState, ...] = ()


def _read(path: Path | None) -> tuple[SimulatedCardState, ...]:
    if path is None or not path.exists():
        return ()
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File).cards
    except (OSError, msgspec.MsgspecError) as error:
        raise CardError(
            f"cannot read the state of the simulated cards in {path} ({error}); "
            "delete the file to start with new cards"
        ) from error
