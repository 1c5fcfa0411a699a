"""What goes wrong in a lab, said to a person.

One exception for all of it: whoever catches it prints the sentence and ends.
"""

from pathlib import Path

TAIL_LINES = 12
TAIL_BYTES = 16_384


class LabError(Exception):
    """One sentence (and, where a program failed, the last lines of its log)."""


def with_log(sentence: str, log: Path) -> LabError:
    """The error of a program that failed: where its log is and how it ends."""
    lines = tail(log)
    if not lines:
        return LabError(f"{sentence} Its log is {log} (empty).")
    return LabError(f"{sentence} Its log is {log} and ends:\n" + "\n".join(f"  {line}" for line in lines))


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last lines of a log; none if it cannot be read."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line[:400] for line in text.splitlines()[-lines:]]
