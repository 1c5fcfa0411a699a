"""All ledger controllers as one process, with or without leader election and clock skew.

Run as `python -m tests.proof.replica --kubeconfig ... --name a [--elected] [--shift SECONDS]`.
"""

import argparse
import asyncio
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from croupier.kube import client, config
from croupier.kube.client import Client
from croupier.kube.clock import SystemClock
from croupier.kube.elector import Elector, Leadership
from croupier.kube.events import Recorder
from croupier.kube.lease import Terms
from tests.proof import house
from tests.proof.company import log_aside, say
from tests.proof.house import House

TERMS = Terms(duration=3, renew_deadline=2.0, every=0.25)


@dataclass(frozen=True)
class Shifted:
    """A clock with an offset."""

    by: timedelta

    def now(self) -> datetime:
        return datetime.now(UTC) + self.by

    def monotonic(self) -> float:
        return SystemClock().monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def made(api: Client, options: Any) -> House:
    clock = Shifted(timedelta(seconds=options.shift))
    return House(api, Recorder(api, "proof", options.name), clock=clock)


async def elected(api: Client, options: Any) -> None:
    async def work(term: Leadership) -> None:
        env = made(api.fenced(term.require), options)
        await env.synced()
        env.start(*house.PARTS, authority=term)
        say("leading")
        try:
            await asyncio.Event().wait()
        finally:
            await env.close()

    elector = Elector(api, "proof", "default", options.name, terms=TERMS)
    await elector.run(work, asyncio.Event())


async def start(options: Any) -> None:
    async with client.connect(config.load(options.kubeconfig)) as api:
        if options.elected:
            await elected(api, options)
            return
        async with house.living(made(api, options)):
            say("leading")
            await asyncio.Event().wait()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--elected", action="store_true")
    parser.add_argument("--shift", type=float, default=0.0)
    log_aside()
    asyncio.run(start(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
