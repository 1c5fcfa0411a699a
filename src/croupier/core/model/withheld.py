"""Why a card takes no new pods: one value, shown in the same words by status, ledger, command line and page.

A person drains a card for a while, or retires it for good; the reason is the person's text. Everything else
passes by itself: a change of the card or its pool, or a fault.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from croupier.core.model import name_list

WithheldState: TypeAlias = Literal["Drained", "Retired", "Changing", "Unhealthy"]

BY_HAND: Final = "by hand"
"""The reason of a person who gave none."""
MAX_REASON: Final = 200
"""Characters of a reason that are kept: it is copied to the ledger and to Events."""
NOT_MANAGED: Final = "it is not managed"
"""The clause about a card whose node excludes its cards by a label: the ledger does not list it."""
_MAX_GROUPS: Final = 3
"""The largest number of different reasons that one sentence names."""
WORDS: Final[dict[WithheldState, str]] = {
    "Drained": "drained",
    "Retired": "retired",
    "Changing": "being changed",
    "Unhealthy": "not healthy",
}


@dataclass(frozen=True, slots=True)
class Withheld:
    """The reason is a clause; it is empty if none was given."""

    state: WithheldState
    reason: str = ""

    def __str__(self) -> str:
        """`drained: the fan is loud`."""
        return f"{WORDS[self.state]}: {self.reason}" if self.reason else WORDS[self.state]

    @property
    def sentence(self) -> str:
        """`it is drained: the fan is loud`; what passes by itself in the words of its reason."""
        return f"it is {self}" if self.is_by_person or not self.reason else self.reason

    @property
    def is_by_person(self) -> bool:
        return self.state in ("Drained", "Retired")


def by_person(state: WithheldState, text: str) -> Withheld:
    """The text of a person, on one line and not too long."""
    line = " ".join(text.split())
    return Withheld(state, line if len(line) <= MAX_REASON else f"{line[: MAX_REASON - 1]}…")


def of_cards(cards: Iterable[Withheld]) -> str:
    """`2 cards are drained: the fan is loud; 1 card is retired`; empty without cards."""
    groups = Counter(cards).most_common()
    named = [
        f"{name_list.counted(count, 'card')} {name_list.be(count)} {withheld}"
        for withheld, count in groups[:_MAX_GROUPS]
    ]
    if more := sum(count for _, count in groups[_MAX_GROUPS:]):
        named.append(f"{more} more {'takes' if more == 1 else 'take'} no new pods")
    return "; ".join(named)
