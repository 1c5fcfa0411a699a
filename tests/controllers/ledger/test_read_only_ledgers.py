"""Read-only ledgers are equal with either capacity manager, and notify of changes."""

from typing import Any

from croupier.api import kinds
from croupier.capacity.read_only_ledgers import ReadOnlyLedgers
from croupier.core.ledger.ledger import Ledger
from croupier.kube.client.api_client import Selection
from tests.controllers.ledger_env import NODE, LedgerEnv, watched
from tests.polling import until


def holders(ledger: Ledger | None) -> dict[str, dict[str, int]]:
    """The holders only, because cards may have another epoch."""
    return {} if ledger is None else {card.id: dict(card.holders) for card in ledger.cards}


async def test_both_capacity_managers_show_the_same_holders(world: LedgerEnv) -> None:
    await world.node()
    cards = [await world.device(0), await world.device(1)]
    holder = await world.runs("trainer", *cards)

    async with (
        world.works("capacity", "holders"),
        world.sees() as sight,
        watched(world.api, kinds.NODE_RESERVATIONS, Selection()) as records,
    ):
        changed: list[str] = []
        ledgers = ReadOnlyLedgers(sight, records)
        ledgers.subscribe(changed.append)
        await ledgers.complete()
        wanted = {card: {holder: 50} for card in cards}
        await until(
            lambda: holders(world.manager.ledger(NODE)) == wanted, "the ledger to count the pod", within=60
        )
        await until(lambda: holders(ledgers.ledger(NODE)) == wanted, "the reader to see it", within=60)
        assert ledgers.ledger("no-such-node") is None

        changed.clear()
        await world.delete("trainer")
        free: dict[str, dict[str, int]] = {card: {} for card in cards}
        await until(lambda: holders(ledgers.ledger(NODE)) == free, "the cards to be free", within=60)
        assert NODE in changed


async def test_pods_without_cards_do_not_change_a_ledger(world: LedgerEnv) -> None:
    await world.node()
    await world.device(0)

    async with world.sees() as sight, watched(world.api, kinds.NODE_RESERVATIONS, Selection()) as records:
        ledgers = ReadOnlyLedgers(sight, records)
        before, changed = ledgers.ledger(NODE), list[str]()
        ledgers.subscribe(changed.append)
        plain = await world.pod("plain")
        await world.bind(plain)
        await until(lambda: _known(sight, plain.metadata.key), "the pod to be known")

        assert changed == []
        assert ledgers.ledger(NODE) is before


def _known(sight: Any, key: str) -> bool:
    return sight.pod(key) is not None
