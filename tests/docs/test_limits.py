"""docs/limits.md names the limits of the code."""

import re
from pathlib import Path

from croupier.core.ledger import ledger
from croupier.core.ledger.reported_cards import MAX_SLOTS
from croupier.core.model import card, card_name

PAGE = Path(__file__).resolve().parents[2] / "docs/limits.md"
ROWS = dict(re.findall(r"^\| ([^|]+) \| (\d+) \|", PAGE.read_text(), re.MULTILINE))

LIMITS = {
    "cards of a node": card.MAX_CARDS,
    "cards of a request": card.MAX_CARDS,
    "holders of a card": card.MAX_HOLDERS,
    "time slices of a card": card.MAX_HOLDERS,
    "MIG devices of a card": MAX_SLOTS,
    "holds of a node that wait for their pods": ledger.MAX_HELD,
    "Reservations of a node that hold cards": ledger.MAX_HELD,
    "characters of the name of a card": card_name.NAME_LIMIT,
    "characters of the label `gpu.deckhouse.io/node`": card_name.LABEL_LIMIT,
}


def test_every_limit_is_on_the_page():
    assert {name: int(value) for name, value in ROWS.items()} == LIMITS
