"""The error of the lab: its message is printed to the user."""

from pathlib import Path

TAIL_LINES = 12
TAIL_BYTES = 16_384


class LabError(Exception):
    """One sentence and, if a program failed, the last lines of its log."""


def with_log(sentence: str, log: Path) -> LabError:
    """The error of a failed program, with the path and the last lines of its log."""
    lines = tail(log)
    if not lines:
        return LabError(f"{sentence} Its log is {log} (empty).")
    return LabError(f"{sentence} Its log is {log} and ends:\n" + "\n".join(f"  {line}" for line in lines))


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last lines of a log; empty if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line[:400] for line in text.splitlines()[-lines:]]
