"""Our own processes beside the stock scheduler, as a cluster runs them."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from bench import contender
from bench.contender import Contender
from croupier.book import switch
from croupier.extender import configuration
from croupier.extender.configuration import Wish
from croupier.kube import client, config
from croupier.lab import controlplane
from croupier.lab.lab import Lab

ROLES = {"InMemory": {"extender": "ec"}, "CRD": {"manager": "c", "extender": "e"}}
"""Which processes there are: e extends the scheduler, c runs the controllers."""

POLL = 0.2
PATIENCE = 180.0


@dataclass(frozen=True, slots=True)
class Company:
    """`processes`: names and pids of those who work beside the scheduler; nobody by default."""

    url: str = ""
    processes: Mapping[str, int] = field(default_factory=dict)
    contenders: Sequence[Contender] = ()

    def scheduler(self, lab: Lab) -> dict[str, Any]:
        wanted = configuration.configuration(Wish(url=self.url)) if self.url else None
        return controlplane.scheduler_configuration(lab.site, wanted)

    async def until_free(self) -> None:
        """Every one of them has seen that nobody holds anything any more."""
        async with asyncio.timeout(PATIENCE):
            for one in self.contenders:
                while await _holders(one):  # noqa: ASYNC110 (it is another process that knows)
                    await asyncio.sleep(POLL)


async def _holders(one: Contender) -> int:
    await one.tell("holders?")
    return int((await one.hear())["holders"])


@asynccontextmanager
async def working(lab: Lab, *, book: str, strategy: str) -> AsyncIterator[Company]:
    """Ready to place when the block begins; leaves no ledger behind."""
    try:
        async with AsyncExitStack() as stack:
            said, started = {}, []
            for name, roles in ROLES[book].items():
                one = contender.started("keeping", lab.kubeconfig, roles, book, strategy)
                started.append(await stack.enter_async_context(one))
                said[name] = await started[-1].hear()
            pids = {name: answer["pid"] for name, answer in said.items()}
            yield Company(said["extender"]["url"], pids, started)
    finally:
        async with client.connect(config.load(lab.kubeconfig)) as api:
            await switch.carry_over(api, lambda _ledger: None)
