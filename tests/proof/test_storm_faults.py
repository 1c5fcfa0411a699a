"""Concurrent claims during failures: all grants stay valid, and everything is released in the end.

Answers may be lost, so the outcome of a claim may be unknown. A scheduler never treats that as granted, and
releases it in the end.
"""

import asyncio
import time

import pytest

from croupier.kube.client import api_client, config
from tests.polling import until
from tests.proof import env, history
from tests.proof.processes import ChildProcess
from tests.proof.test_storm import contents, every_yes_is_in, fair, nothing, storm, summary

SECONDS = 70

NODES = [f"node-{number}" for number in range(4)]
CARDS = 4
BUDGET = len(NODES) * CARDS * 130 // 8


class Breakage:
    """Failures of the API server while the schedulers are running."""

    def __init__(self, lab, recording) -> None:
        self._lab = lab
        self._recording = recording

    async def dies(self, players: list[ChildProcess]) -> None:
        """Kill it during requests.

        The schedulers are frozen before and after, so that the recording, which is interrupted as well, can
        prove that nothing is missing.
        """
        await self._some_trade()
        await self._hold(players)
        for player in players:
            player.resume()
        self._lab.kill("kube-apiserver")
        await self._come_back(players)

    async def forgets(self, players: list[ChildProcess]) -> None:
        """Compact etcd, so that every resumed watch gets 410 Gone."""
        await self._some_trade()
        await self._hold(players)
        self._lab.kill("kube-apiserver")
        await asyncio.to_thread(self._lab.etcd_compact)
        await self._come_back(players)

    async def _hold(self, players: list[ChildProcess]) -> None:
        for player in players:
            player.freeze()
        await self._recording.complete()

    async def _come_back(self, players: list[ChildProcess]) -> None:
        for player in players:
            player.freeze()
        await self._lab.start("kube-apiserver")
        await self._lab.ready()
        await self._recording.complete()
        for player in players:
            player.resume()

    async def _some_trade(self) -> None:
        seen = self._recording.revisions
        await until(lambda: self._recording.revisions > seen + 40, "some writes", within=120)


FAULTS = {
    "429 and 5xx on 20 % of calls": ("", {"flaky": 0.2}),
    "the API server is killed and restarted": ("dies", {}),
    "every watch is compacted away": ("forgets", {}),
}


@pytest.mark.parametrize(("breakage", "options"), FAULTS.values(), ids=FAULTS)
async def test_concurrent_claims_with(private_lab, size, tell, tmp_path, breakage, options):
    lab = await private_lab(crds=True, durable=True)
    each = max(40, size.requests // 40)
    async with api_client.connect(config.load(lab.kubeconfig)) as api, history.record(api) as recording:
        await env.create_ledgers(api, NODES, CARDS)
        await recording.complete()
        before = contents(recording.sheets())

        began = time.monotonic()
        failure = getattr(Breakage(lab, recording), breakage) if breakage else nothing
        options_ = {"nodes": ",".join(NODES), "requests": each, "budget": BUDGET, "schedulers": 8, **options}
        accounts = await storm(lab, recording, tmp_path, options_, failure)
        await recording.complete()

        troubles = sum(len(account["troubles"]) for account in accounts)
        tell(f"{summary(accounts, recording, time.monotonic() - began)}; {troubles} errors handled")
    assert recording.faults() == []
    assert every_yes_is_in(recording, accounts) == []
    assert contents(recording.sheets()) == before
    assert not [
        trouble for account in accounts for trouble in account["troubles"] if "claimed twice" in trouble
    ]
    fair(accounts, each)
