"""Questions about the past, answered from the journal and cut to what the viewer may see."""

import asyncio
import csv
import io
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from croupier.ui import hold_lines, redaction, snapshots
from croupier.ui.hold_lines import HoldLine
from croupier.ui.journal import HistoryState, Journal
from croupier.ui.rights import Rights
from croupier.ui.tables import PARTS, Delta, Tables

CSV_HEADER = ("card", "pod", "share", "from", "to")


class NoHistory(Exception):
    """The history does not reach back to that time; the text is the sentence. Becomes 404."""


class PastNames:
    """The rows of one time, which other rows refer to."""

    def __init__(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        self._rows = rows

    def holder(self, number: int) -> str:
        row = self._rows.get("holders", {}).get(str(number))
        return str(row[0]) if row is not None else ""

    def row(self, table: str, key: str) -> Any | None:
        return self._rows.get(table, {}).get(key)

    def rows(self, part: str) -> Mapping[str, Mapping[str, Any]]:
        return {table: self._rows.get(table, {}) for table in PARTS[part]}


class HistoryAnswers:
    def __init__(self, journal: Journal, tables: Tables) -> None:
        self._journal = journal
        self._tables = tables

    @property
    def size(self) -> int:
        return self._journal.size

    def record(self, delta: Delta) -> None:
        rows = {table: found for part in PARTS for table, found in self._tables.rows(part).items()}
        self._journal.record(delta, rows)

    def close(self) -> None:
        """Write what is not written yet: the process stops."""
        self._journal.close()

    def overview(self) -> dict[str, Any]:
        journal = self._journal
        return {"begins": journal.begins, "ends": journal.ends, "marks": journal.marks()}

    def state(self, at: float) -> HistoryState:
        found = self._journal.at(at)
        if found is None:
            begins = datetime.fromtimestamp(self._journal.begins, UTC)
            raise NoHistory(f"the history begins at {begins:%Y-%m-%d %H:%M:%S} UTC; choose a later time")
        return found

    async def at(self, at: float, rights: Rights) -> bytes:
        """The rows at a time, as compressed JSON."""
        return await asyncio.to_thread(self._encoded, at, rights)

    def _encoded(self, at: float, rights: Rights) -> bytes:
        state = self.state(at)
        cut = redaction.tables(state.rows, rights, PastNames(state.rows))
        head = {"process": self._tables.process, "seq": state.seq, "at": state.at, "part": "all"}
        return snapshots.compress(msgspec.json.encode({**head, "tables": cut}))

    async def lines(self, rights: Rights, *, card: str = "", pod: str = "") -> list[dict[str, Any]]:
        found = await asyncio.to_thread(self._lines, rights, card, pod)
        return [line.as_data() for line in found]

    async def csv(self, rights: Rights, since: float, until: float) -> str:
        """The lines of all cards that overlap a span of time."""
        found = await asyncio.to_thread(self._lines, rights, "", "")
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CSV_HEADER)
        for line in found:
            if line.since <= until and (line.until is None or line.until >= since):
                row = (line.card, line.pod, line.share, _iso(line.since), _iso(line.until))
                writer.writerow(map(_harmless, row))
        return text.getvalue()

    def _lines(self, rights: Rights, card: str, pod: str) -> list[HoldLine]:
        found = hold_lines.lines(self._journal.replay()(), card=card, pod=pod)
        return [line for line in found if rights.sees_namespace(line.pod.partition("/")[0])]


def _iso(moment: float | None) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat() if moment is not None else ""


def _harmless(text: str) -> str:
    """A cell that a spreadsheet does not take for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
