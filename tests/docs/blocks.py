"""Find the code blocks of a page, and whether a test runs them.

A block is fenced, or indented by four spaces. The comment `<!-- run: lab -->` on the line above the block, or
above the blank line before it, says that a test runs the block, and in which environment.
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
    """All documentation pages, including decisions and generated pages."""
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    return sorted(page for page in paths if page.name != "CHANGELOG.md")


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    at, runs = 0, ""
    while at < len(lines):
        start, line = at, lines[at]
        if comment := COMMENT.match(line):
            runs, at = comment[1], at + 1
            continue
        if fence := FENCE.match(line):
            at = _end_of_fence(lines, at)
            content, indent = lines[start + 1 : at - 1], len(fence[1])
            yield Block(page, start + 1, fence[2], "\n".join(text[indent:] for text in content), runs)
        elif line.startswith("    ") and (runs or not lines[start - 1].strip()):
            at = _end_of_indented(lines, at)
            yield Block(page, start + 1, "", "\n".join(text[4:] for text in lines[start:at]), runs)
        else:
            at += 1
        if line.strip():
            runs = ""


def spans(page: Path) -> Iterator[tuple[int, str]]:
    """Code spans (text between backticks) outside fenced blocks, with their line numbers."""
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield from ((number, span) for span in SPAN.findall(line))


def _end_of_fence(lines: list[str], start: int) -> int:
    closing = (at for at in range(start + 1, len(lines)) if lines[at].strip() == "```")
    return next(closing) + 1


def _end_of_indented(lines: list[str], start: int) -> int:
    at = start
    while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
        at += 1
    return at


def marked(page: Path, where: str) -> list[Block]:
    """The commands of a page that are marked with `where`."""
    return [block for block in blocks(page) if block.runs.split(", ")[0] == where]
