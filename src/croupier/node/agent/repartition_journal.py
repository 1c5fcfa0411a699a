"""The previous partitioning of cards with an unfinished change.

It is in a file if the agent has a state folder, so that it survives a restart. Losing it costs little: a
change that fails later is then rolled back only to the state of the interruption.
"""

from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from croupier.core.cards.partitioning import MigState
from croupier.core.model.mig import MigDevice
from croupier.node.cards import state_file

log = structlog.get_logger(__name__)


class RepartitionJournal(Protocol):
    def addresses(self) -> frozenset[str]: ...

    def before(self, address: str, uuid: str) -> MigState | None:
        """The previous partitioning of the card with this UUID. None for another card at the address."""
        ...

    def remember(self, address: str, uuid: str, before: MigState) -> None: ...

    def forget(self, address: str) -> None: ...


class _JournalEntry(msgspec.Struct, frozen=True):
    uuid: str
    enabled: bool
    pieces: tuple[tuple[str, int, int], ...]


class MemoryJournal:
    """For simulated cards that do not survive a restart of the agent."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[str, MigState]] = {}

    def addresses(self) -> frozenset[str]:
        return frozenset(self._entries)

    def before(self, address: str, uuid: str) -> MigState | None:
        entry = self._entries.get(address)
        return entry[1] if entry is not None and entry[0] == uuid else None

    def remember(self, address: str, uuid: str, before: MigState) -> None:
        self._entries[address] = (uuid, before)

    def forget(self, address: str) -> None:
        self._entries.pop(address, None)


class FileJournal:
    """A small file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries = _read(path)

    def addresses(self) -> frozenset[str]:
        return frozenset(self._entries)

    def before(self, address: str, uuid: str) -> MigState | None:
        entry = self._entries.get(address)
        if entry is None or entry.uuid != uuid:
            return None
        return MigState(entry.enabled, tuple(MigDevice(*piece) for piece in entry.pieces))

    def remember(self, address: str, uuid: str, before: MigState) -> None:
        pieces = tuple((piece.profile, piece.start, piece.size) for piece in before.placements)
        self._write({**self._entries, address: _JournalEntry(uuid, before.enabled, pieces)})

    def forget(self, address: str) -> None:
        if address in self._entries:
            self._write({key: entry for key, entry in self._entries.items() if key != address})

    def _write(self, entries: dict[str, _JournalEntry]) -> None:
        self._entries = entries
        try:
            state_file.replace(
                self._path, {key: msgspec.to_builtins(entry) for key, entry in entries.items()}
            )
        except OSError as error:  # a missing journal must not interrupt a change
            log.warning("cannot write the journal of changes", path=str(self._path), error=str(error))


def _read(path: Path) -> dict[str, _JournalEntry]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, _JournalEntry])
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        log.warning(
            "cannot read the journal of changes; starting a new one", path=str(path), error=str(error)
        )
        return {}
