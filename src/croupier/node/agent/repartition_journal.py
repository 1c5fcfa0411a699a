"""The previous partitioning of cards with an unfinished change.

It is in a file if the agent has a state folder, so that it survives a restart. Losing it costs little: a
change that fails later is then rolled back only to the state of the interruption.
"""

from pathlib import Path

import msgspec
import structlog

from croupier.core.cards.partitioning import MigState
from croupier.core.model.mig import MigDevice
from croupier.node.cards import state_file

log = structlog.get_logger(__name__)


class _JournalEntry(msgspec.Struct, frozen=True):
    uuid: str
    enabled: bool
    pieces: tuple[tuple[str, int, int], ...]


class RepartitionJournal:
    """A small file that is replaced as a whole; without a path it is only in memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries = _read(path) if path is not None else {}

    def addresses(self) -> frozenset[str]:
        return frozenset(self._entries)

    def before(self, address: str, uuid: str) -> MigState | None:
        """The previous partitioning of the card with this UUID. None for another card at the address."""
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
        if self._path is None:
            return
        try:
            state_file.replace(
                self._path, {key: msgspec.to_builtins(entry) for key, entry in entries.items()}
            )
        except OSError as error:  # a missing journal must not interrupt a change
            log.warning(
                f"the journal of repartitionings {self._path} cannot be written",
                path=str(self._path),
                error=str(error),
            )


def _read(path: Path) -> dict[str, _JournalEntry]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, _JournalEntry])
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        log.warning(
            f"the journal of repartitionings {path} is unreadable, so a new one is started",
            path=str(path),
            error=str(error),
        )
        return {}
