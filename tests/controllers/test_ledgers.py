"""Whoever reads ledgers sees the same wherever the book is kept, and is told when one changes."""

from typing import Any

from croupier.api import kinds
from croupier.controllers.ledger.ledgers import Ledgers
from croupier.core.ledgers.ledger import Ledger
from croupier.kube.client import Selection
from tests.controllers.world import NODE, World, watched
from tests.kube.waiting import until


def holders(ledger: Ledger | None) -> dict[str, dict[str, int]]:
    """What matters of it: cards may have been opened in another epoch."""
    return {} if ledger is None else {card.id: dict(card.holders) for card in ledger.cards}


async def test_the_same_holders_on_either_book(world: World) -> None:
    await world.node()
    cards = [await world.device(0), await world.device(1)]
    holder = await world.runs("trainer", *cards)

    async with (
        world.works("capacity", "holders"),
        world.sees() as sight,
        watched(world.api, kinds.NODE_RESERVATIONS, Selection()) as records,
    ):
        told: list[str] = []
        ledgers = Ledgers(sight, records)
        ledgers.subscribe(told.append)
        await ledgers.complete()
        wanted = {card: {holder: 50} for card in cards}
        await until(
            lambda: holders(world.book.ledger(NODE)) == wanted, "the book to count the pod", within=60
        )
        await until(lambda: holders(ledgers.ledger(NODE)) == wanted, "the reader to see it", within=60)
        assert ledgers.ledger("no-such-node") is None

        told.clear()
        await world.delete("trainer")
        free: dict[str, dict[str, int]] = {card: {} for card in cards}
        await until(lambda: holders(ledgers.ledger(NODE)) == free, "the cards to be free", within=60)
        assert NODE in told


async def test_pods_without_cards_disturb_nobody(world: World) -> None:
    await world.node()
    await world.device(0)

    async with world.sees() as sight, watched(world.api, kinds.NODE_RESERVATIONS, Selection()) as records:
        ledgers = Ledgers(sight, records)
        before, told = ledgers.ledger(NODE), list[str]()
        ledgers.subscribe(told.append)
        plain = await world.pod("plain")
        await world.bind(plain)
        await until(lambda: _known(sight, plain.metadata.key), "the pod to be known")

        assert told == []
        assert ledgers.ledger(NODE) is before


def _known(sight: Any, key: str) -> bool:
    return sight.pod(key) is not None
