"""docs/cards.md contains the lifecycle table. `python -m tests.core.cards.test_cards_docs` regenerates it."""

import re
from pathlib import Path

from tools import lifecycle_docs

PAGE = Path(__file__).resolve().parents[3] / "docs/cards.md"


def drawn(page: str) -> str:
    """The page with its two generated parts up to date."""
    page = re.sub(r"(?s)(```mermaid\n).*?(\n```)", lambda m: m[1] + lifecycle_docs.diagram() + m[2], page)
    return re.sub(r"(?m)(^\| from \| to .*\n)(^\|.*\n)+", lambda _: lifecycle_docs.table() + "\n", page)


def test_the_page_contains_the_lifecycle_table():
    page = PAGE.read_text()

    assert lifecycle_docs.table() in page
    assert lifecycle_docs.diagram() in page
    assert drawn(page) == page


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
