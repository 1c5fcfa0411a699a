"""The page about cards shows the table that decides. `python -m tests.core.test_cards_docs` draws it anew."""

import re
from pathlib import Path

from croupier.core.cards import lifecycle_drawing

PAGE = Path(__file__).resolve().parents[2] / "docs/cards.md"


def drawn(page: str) -> str:
    """The page with its two generated parts as they should be."""
    page = re.sub(r"(?s)(```mermaid\n).*?(\n```)", lambda m: m[1] + lifecycle_drawing.diagram() + m[2], page)
    return re.sub(r"(?m)(^\| from \| to .*\n)(^\|.*\n)+", lambda _: lifecycle_drawing.table() + "\n", page)


def test_the_page_shows_the_table_that_decides():
    page = PAGE.read_text()

    assert lifecycle_drawing.table() in page
    assert lifecycle_drawing.diagram() in page
    assert drawn(page) == page


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
