"""The same storm while things break: what schedulers were promised still holds, and all comes back.

Answers may stay away here, so a scheduler may not know whether it got something. It never takes that for
a yes, and gives it back in the end, whatever it was.
"""

import asyncio
import time

import pytest

from croupier.kube import client, config
from tests.kube.waiting import until
from tests.proof import ground, history
from tests.proof.company import Player
from tests.proof.test_storm import contents, every_yes_is_in, fair, nothing, storm, summary

SECONDS = 120

NODES = [f"node-{number}" for number in range(4)]
CARDS = 4
BUDGET = len(NODES) * CARDS * 130 // 8


class Breakage:
    """What happens to the API server while the schedulers trade."""

    def __init__(self, lab, recording) -> None:
        self._lab = lab
        self._recording = recording

    async def dies(self, players: list[Player]) -> None:
        """In the middle of requests. Before and after, nobody trades for a moment: the recording is cut off,
        too, and must be able to tell that nothing is missing."""
        await self._some_trade()
        await self._hold(players)
        for player in players:
            player.thaw()
        self._lab.kill("kube-apiserver")
        await self._come_back(players)

    async def forgets(self, players: list[Player]) -> None:
        """Every watch that goes on from before is answered 410 Gone."""
        await self._some_trade()
        await self._hold(players)
        self._lab.kill("kube-apiserver")
        await asyncio.to_thread(self._lab.etcd_compact)
        await self._come_back(players)

    async def _hold(self, players: list[Player]) -> None:
        for player in players:
            await player.freeze()
        await self._recording.complete()

    async def _come_back(self, players: list[Player]) -> None:
        for player in players:
            await player.freeze()
        await self._lab.start("kube-apiserver")
        await self._lab.ready()
        await self._recording.complete()
        for player in players:
            player.thaw()

    async def _some_trade(self) -> None:
        seen = self._recording.revisions
        await until(lambda: self._recording.revisions > seen + 40, "some trade", within=120)


FAULTS = {
    "429 and 5xx on 20 % of calls": ("", {"flaky": 0.2}),
    "the API server dies and comes back": ("dies", {}),
    "every watch is compacted away": ("forgets", {}),
}


@pytest.mark.parametrize(("breakage", "options"), FAULTS.values(), ids=FAULTS)
async def test_a_storm_in_which(private_lab, size, tell, tmp_path, breakage, options):
    lab = await ground.raised(private_lab, durable=True)
    each = max(40, size.requests // 40)
    async with client.connect(config.load(lab.kubeconfig)) as api, history.recorded(api) as recording:
        await ground.opened(api, NODES, CARDS)
        await recording.complete()
        before = contents(recording.sheets())

        began = time.monotonic()
        meanwhile = getattr(Breakage(lab, recording), breakage) if breakage else nothing
        wishes = {"nodes": ",".join(NODES), "requests": each, "budget": BUDGET, "schedulers": 8, **options}
        accounts = await storm(lab, recording, tmp_path, wishes, meanwhile)
        await recording.complete()

        troubles = sum(len(account["troubles"]) for account in accounts)
        tell(f"{summary(accounts, recording, time.monotonic() - began)}; {troubles} troubles survived")
    assert recording.faults() == []
    assert every_yes_is_in(recording, accounts) == []
    assert contents(recording.sheets()) == before
    assert not [one for account in accounts for one in account["troubles"] if "asked twice" in one]
    fair(accounts, each)
