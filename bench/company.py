"""Our own processes beside the stock scheduler, as a cluster runs them."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from croupier.lab.lab import Lab


@dataclass(frozen=True, slots=True)
class Company:
    """`processes`: names and pids of those who work beside the scheduler."""

    processes: Mapping[str, int] = field(default_factory=dict)

    def scheduler(self, configuration: Mapping[str, Any]) -> Mapping[str, Any]:
        return configuration

    async def until_free(self) -> None:
        pass


@asynccontextmanager
async def working(lab: Lab, *, book: str, strategy: str) -> AsyncIterator[Company]:
    raise NotImplementedError
    yield Company()
