"""All ledger controllers as one process, with or without leader election and clock skew.

Run as `python -m tests.proof.replica --kubeconfig ... --name a [--elected] [--shift SECONDS]`.
"""

import argparse
import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.leader_election import Elector, Leadership
from croupier.kube.controller.lease import LeaseTimings
from tests.clocks import OffsetClock
from tests.proof import manager_env
from tests.proof.manager_env import LedgerManagerEnv
from tests.proof.processes import emit, log_to_stderr, read_command

TERMS = LeaseTimings(duration=3, renew_deadline=2.0, every=0.25)


def build_env(api: Client, options: Any) -> LedgerManagerEnv:
    return LedgerManagerEnv(api, EventRecorder(api, "proof", options.name), base_clock=api.clock)


async def follow_orders(env: LedgerManagerEnv) -> None:
    """Run a full round for each command, until this process is killed."""
    emit("leading")
    while await read_command():
        await env.full_round()
        emit("full round")


async def elected(api: Client, options: Any) -> None:
    async def work(term: Leadership) -> None:
        env = build_env(api.fenced(term.require), options)
        await env.synced()
        env.start(*manager_env.CONTROLLERS, "usage", authority=term)
        try:
            await follow_orders(env)
        finally:
            await env.close()

    elector = Elector(api, "proof", "default", options.name, terms=TERMS)
    await elector.run(work, asyncio.Event())


async def start(options: Any) -> None:
    clock = OffsetClock(ahead=timedelta(seconds=options.shift))
    async with api_client.connect(config.load(options.kubeconfig), clock=clock) as api:
        if options.elected:
            await elected(api, options)
            return
        async with manager_env.running(build_env(api, options)) as env:
            await follow_orders(env)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--elected", action="store_true")
    parser.add_argument("--shift", type=float, default=0.0)
    log_to_stderr()
    asyncio.run(start(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
