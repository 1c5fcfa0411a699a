"""The controllers of the ledger with the CRD capacity manager: `--controllers ledger`."""

import asyncio

from croupier.api import kinds
from croupier.capacity.metrics import LedgerWriteMetrics
from croupier.kube.controller.leader_election import Leadership
from croupier.kube.serving.component_runner import Component
from croupier.wiring import elections, ledger
from croupier.wiring.ledger import LedgerControllers
from croupier.wiring.process_context import InformerFactory, ProcessContext, new_elector


def components(context: ProcessContext, caches: InformerFactory) -> list[Component]:
    controllers = LedgerControllers(context, caches, elections.LEDGER)
    ledgers = caches.follow(kinds.NODE_RESERVATIONS)
    metrics = LedgerWriteMetrics(context.metrics.registry)
    elector = new_elector(context, elections.LEDGER)

    async def lead(stop: asyncio.Event) -> None:
        async def work(leadership: Leadership) -> None:
            manager = ledger.crd_manager(context, ledgers, metrics, context.api.fenced(leadership.require))
            try:
                await context.live_settings.run_with(
                    lambda end, _: controllers.run(manager, leadership, end, records=ledgers), stop
                )
            finally:
                await ledger.flush(manager)

        await elector.run(work, stop)

    return [controllers.events(), Component("controllers", lead)]
