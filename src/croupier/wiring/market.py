"""`croupier market run`: the CPU market agent of one node."""

import asyncio
from dataclasses import replace

from croupier.api import kinds
from croupier.kube.client import Selection
from croupier.kube.run import Part
from croupier.kube.together import first
from croupier.node.market import market
from croupier.node.market import sight as market_sight
from croupier.node.market.cgroup import Tree
from croupier.node.market.market import Agent
from croupier.node.market.metrics import MarketMetrics
from croupier.node.market.sight import Sources as MarketSources
from croupier.wiring.surface import Caches, Settings, surfaced, until_stopped


async def work(settings: Settings, chosen: market.Settings, tree: Tree) -> int:
    """Run the CPU market of one node; it starts after all caches have synced."""
    async with surfaced(settings) as surface:
        caches = Caches(surface.api, surface.metrics)
        sources = MarketSources(
            caches.follow(kinds.NODES, Selection(fields=f"metadata.name={chosen.node}")).store,
            caches.follow(kinds.PODS, Selection(fields=f"spec.nodeName={chosen.node}")).store,
            caches.follow(kinds.POD_ALLOCATIONS, market_sight.written_for(chosen.node)).store,
            caches.follow(
                kinds.POD_ALLOCATIONS, market_sight.BY_PEOPLE, name="podallocations by people"
            ).store,
        )
        chosen = replace(chosen, gauge=MarketMetrics(surface.metrics.registry))
        api = surface.api.acting_as(market.REPORTER)

        async def trade(stop: asyncio.Event) -> None:
            await first(stop, caches.synced())
            await surface.orders.obeyed(lambda end, _: Agent(sources, tree, api, chosen).run(end), stop)

        surface.checks.ready |= {"caches": caches.behind, "control groups": tree.trouble}
        return await until_stopped(surface, [*caches.parts(), Part("market", trade)])
