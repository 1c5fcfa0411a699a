"""`croupier market run`: the CPU market agent of one node."""

import asyncio
from dataclasses import replace

from croupier.api import kinds
from croupier.kube.client.api_client import Selection
from croupier.kube.client.concurrency import wait_or_stop
from croupier.kube.serving.component_runner import Component
from croupier.node.market import market_agent
from croupier.node.market import node_view as market_sight
from croupier.node.market.cgroup import CgroupTree
from croupier.node.market.market_agent import MarketAgent
from croupier.node.market.metrics import MarketMetrics
from croupier.node.market.node_view import MarketStores as MarketSources
from croupier.wiring.process_context import InformerFactory, ProcessOptions, open_context, run_until_stopped


async def work(settings: ProcessOptions, chosen: market_agent.MarketAgentOptions, tree: CgroupTree) -> int:
    """Run the CPU market of one node; it starts after all caches have synced."""
    async with open_context(settings) as context:
        caches = InformerFactory(context.api, context.metrics)
        sources = MarketSources(
            caches.follow(kinds.NODES, Selection(fields=f"metadata.name={chosen.node}")).store,
            caches.follow(kinds.PODS, Selection(fields=f"spec.nodeName={chosen.node}")).store,
            caches.follow(kinds.POD_ALLOCATIONS, market_sight.written_for(chosen.node)).store,
            caches.follow(
                kinds.POD_ALLOCATIONS, market_sight.WRITTEN_BY_HAND, name="podallocations by people"
            ).store,
        )
        chosen = replace(chosen, clock=context.api.clock, metrics=MarketMetrics(context.metrics.registry))
        api = context.api.with_field_manager(market_agent.FIELD_MANAGER)

        async def trade(stop: asyncio.Event) -> None:
            await wait_or_stop(stop, caches.synced())
            await context.live_settings.run_with(
                lambda end, _: MarketAgent(sources, tree, api, chosen).run(end), stop
            )

        context.checks.ready |= {"caches": caches.not_synced, "control groups": tree.problem}
        return await run_until_stopped(
            context, [*caches.components(), Component("market", trade)], name="croupier market run"
        )
