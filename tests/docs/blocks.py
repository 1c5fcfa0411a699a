"""The blocks of a page that a reader would copy, and whether a test runs them.

A block is fenced, or indented by four spaces. The comment `<!-- run: lab -->` on the line above it, or
above the blank line before it, says that a test runs it, and where.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SHELLS: Final = ("", "sh", "bash", "console")
COMMENT: Final = re.compile(r"<!-- run: (.+) -->$")
FENCE: Final = re.compile(r"^( *)```(\w*)")
SPAN: Final = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    runs: str = ""

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """All that people read, decisions and generated pages included."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    return sorted(page for page in found if page.name != "CHANGELOG.md")


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    at, runs = 0, ""
    while at < len(lines):
        begun, line = at, lines[at]
        if said := COMMENT.match(line):
            runs, at = said[1], at + 1
            continue
        if fence := FENCE.match(line):
            at = _end_of_fence(lines, at)
            inside, language = lines[begun + 1 : at - 1], fence[2]
            yield Block(page, begun + 1, language, "\n".join(one[len(fence[1]) :] for one in inside), runs)
        elif line.startswith("    ") and (runs or not lines[begun - 1].strip()):
            at = _end_of_indented(lines, at)
            yield Block(page, begun + 1, "", "\n".join(one[4:] for one in lines[begun:at]), runs)
        else:
            at += 1
        if line.strip():
            runs = ""


def spans(page: Path) -> Iterator[tuple[int, str]]:
    """What stands between backticks in the running text, with its line."""
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield from ((number, span) for span in SPAN.findall(line))


def _end_of_fence(lines: list[str], begun: int) -> int:
    closing = (at for at in range(begun + 1, len(lines)) if lines[at].strip() == "```")
    return next(closing) + 1


def _end_of_indented(lines: list[str], begun: int) -> int:
    at = begun
    while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
        at += 1
    return at
