"""The CRDCapacityManager with concurrent writers, lost replies and a late watch never overcommits."""

import asyncio
from asyncio import gather
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from croupier.api import kinds
from croupier.api.mps import NodeReservation, ledger_codec
from croupier.capacity.crd import CRDCapacityManager
from croupier.capacity.writer import LedgerContended, LedgerWriterOptions
from croupier.core.ledger import ledger as ledgers
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import CardGrant, Grant
from croupier.core.model.card_request import CardShares
from croupier.core.model.refusal import Refusal
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config, watch_protocol
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import Invalid, Unreachable
from tests.capacity.env import NO_FLUSH, NODE, NOON, UID, CapacityEnv, capacity_env, claim, node, percent, pod
from tests.polling import until, until_async

RAW = kinds.NODE_RESERVATIONS.raw


@pytest.fixture
def kubeconfig(cluster: Any, clean_cluster: None) -> Path:
    path: Path = cluster.kubeconfig
    return path


async def stored(env: CapacityEnv) -> Ledger:
    """The ledger in the API server."""
    return ledger_codec.decode(NODE, (await env.api.get(kinds.NODE_RESERVATIONS, NODE)).spec)


async def foreign_hold(api: Client, holder: str, share: int, card: int = 0) -> None:
    """Another process takes a share."""
    raw = await api.get(RAW, NODE)
    raw["spec"]["cards"][card].setdefault("holders", {})[holder] = share
    await api.update(RAW, raw)


async def test_many_claims_share_a_write(kubeconfig):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node())
        answers = await gather(*(env.manager.claim(NODE, claim(pod(n), CardShares(1, 5))) for n in range(30)))

        assert not any(isinstance(answer, Refusal) for answer in answers)
        assert env.count("update") == 1
        assert (await stored(env)).holders() == {pod(n) for n in range(30)}


async def test_releases_come_first_then_priority_then_arrival(kubeconfig):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node(percent()))
        await env.manager.claim(NODE, claim(pod(0), CardShares(1)))

        low, high, later, _ = await gather(
            env.manager.claim(NODE, claim(pod(1), CardShares(1, 60), priority=1)),
            env.manager.claim(NODE, claim(pod(2), CardShares(1, 60), priority=9)),
            env.manager.claim(NODE, claim(pod(3), CardShares(1, 40), priority=9)),
            env.manager.release(pod(0), NODE),
        )

        assert isinstance(low, Refusal)
        assert (high, later) == ((CardGrant("node-1-gpu-0", 60),), (CardGrant("node-1-gpu-0", 40),))
        assert env.count("update") == 2


async def test_changes_without_effect_are_not_written(kubeconfig):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node())
        await env.manager.claim(NODE, claim(pod()))
        written = env.count("update")

        await env.manager.claim(NODE, claim(pod()))
        await env.manager.claim(NODE, claim(pod(1), CardShares(3)))
        await env.manager.release(pod(7), NODE)
        await env.manager.amend(NODE, lambda ledger: ledger)

        assert env.count("update") == written
        assert env.count("get") == 0


async def test_lazy_changes_wait_to_share_a_write(kubeconfig):
    async with capacity_env(kubeconfig, rules=NO_FLUSH) as env:
        await env.manager.open(NODE, node())
        await gather(*(env.manager.claim(NODE, claim(pod(n), CardShares(1, 10))) for n in range(5)))
        written = env.count("update")

        binds = [env.manager.amend(NODE, _bind(pod(n)), lazy=True) for n in range(5)]
        *_, last = await gather(*binds, env.manager.release(pod(9), NODE), return_exceptions=True)

        assert last is None
        assert env.count("update") == written + 1
        assert not (await stored(env)).held


async def test_lazy_changes_are_flushed_eventually(kubeconfig):
    async with capacity_env(kubeconfig, rules=LedgerWriterOptions(flush_after=0.05)) as env:
        await env.manager.open(NODE, node())
        await gather(*(env.manager.claim(NODE, claim(pod(n), CardShares(1, 10))) for n in range(5)))
        written = env.count("update")

        await gather(*(env.manager.amend(NODE, _bind(pod(n)), lazy=True) for n in range(5)))

        assert env.count("update") == written + 1


async def test_a_single_claim_does_not_wait_for_the_batch_window(kubeconfig):
    async with (
        capacity_env(kubeconfig, rules=LedgerWriterOptions(batch_window=600.0)) as env,
        asyncio.timeout(60),
    ):
        await env.manager.open(NODE, node())

        assert not isinstance(await env.manager.claim(NODE, claim(pod(1), CardShares(1, 10))), Refusal)


async def test_a_delayed_write_includes_claims_that_arrive_during_the_batch_window(kubeconfig):
    async with capacity_env(kubeconfig, rules=LedgerWriterOptions(batch_window=2.0)) as env:
        await env.manager.open(NODE, node())
        await env.manager.claim(NODE, claim(pod(0), CardShares(1, 10)))
        written = env.count("update")

        first = asyncio.create_task(env.manager.claim(NODE, claim(pod(1), CardShares(1, 10))))
        await env.api.get(
            kinds.NODE_RESERVATIONS, NODE
        )  # without batch window the first claim is being written by now
        second = asyncio.create_task(env.manager.claim(NODE, claim(pod(2), CardShares(1, 10))))
        await gather(first, second)

        assert env.count("update") == written + 1


def _bind(holder: str) -> Callable[[Ledger], Ledger]:
    return lambda ledger: ledgers.bind(ledger, holder)


async def test_after_a_conflict_the_batch_is_decided_again(kubeconfig):
    async with capacity_env(kubeconfig, watching=False) as env:
        await env.manager.open(NODE, node())
        await foreign_hold(env.api, "other/pod", 80)

        answers = await gather(
            env.manager.claim(NODE, claim(pod(0), CardShares(2, 20))),
            env.manager.claim(NODE, claim(pod(1), CardShares(2, 20))),
        )

        assert env.count("update", 409) == 1
        assert isinstance(answers[1], Refusal)
        now = await stored(env)
        assert now.holders() == {"other/pod", pod(0)}
        assert env.manager.ledger(NODE) == now


async def test_writes_of_other_processes_are_watched(kubeconfig):
    async with capacity_env(kubeconfig) as env, capacity_env(kubeconfig) as other:
        await env.manager.open(NODE, node())
        await env.manager.claim(NODE, claim(pod(0)))
        await until(
            lambda: (ledger := other.manager.ledger(NODE)) and ledger.holders(), "the other to see it"
        )
        await other.manager.claim(NODE, claim(pod(1)))
        await until(
            lambda: (ledger := env.manager.ledger(NODE)) and len(ledger.holders()) == 2, "us to see it"
        )

        await env.manager.release(pod(1), NODE)

        assert env.count("update", 409) == other.count("update", 409) == 0
        assert (await stored(env)).holders() == {pod(0)}


async def test_a_contended_ledger_is_given_up_with_a_message(kubeconfig):
    async with capacity_env(kubeconfig, watching=False, rules=LedgerWriterOptions(tries=1)) as env:
        await env.manager.open(NODE, node())
        await foreign_hold(env.api, "other/pod", 10)

        with pytest.raises(LedgerContended, match="other processes changed the ledger of node-1 1 times"):
            await env.manager.claim(NODE, claim(pod()))

        assert env.manager.ledger(NODE) == node()
        assert await env.manager.claim(NODE, claim(pod())) == (CardGrant("node-1-gpu-1", 50),)


class Once:
    """Loses the first reply, or the first write, with a given verb."""

    def __init__(self, verb: str) -> None:
        self.verb = verb
        self.armed = False

    def reply(self, verb: str, code: int) -> None:
        if self.armed and verb == self.verb:
            self.armed = False
            raise Unreachable("the reply was lost")

    def write(self) -> None:
        self.reply(self.verb, 0)


@pytest.mark.parametrize("hook", ["after", "before"])
async def test_a_lost_reply_or_a_lost_write_ends_in_one_reservation(kubeconfig, hook):
    lost = Once("update")
    hooks: dict[str, Any] = {"after": lost.reply} if hook == "after" else {"before": lost.write}
    async with capacity_env(kubeconfig, **hooks) as env:
        await env.manager.open(NODE, node())
        lost.armed = True

        answers = await gather(*(env.manager.claim(NODE, claim(pod(n), CardShares(1, 40))) for n in range(5)))

        now = await stored(env)
        assert [isinstance(answer, Refusal) for answer in answers] == [False] * 4 + [True]
        assert [now.grant(pod(n)) for n in range(4)] == answers[:4]
        assert env.manager.ledger(NODE) == now
        assert not lost.armed


async def test_a_lost_reply_to_a_release_releases_once(kubeconfig):
    lost = Once("update")
    async with capacity_env(kubeconfig, after=lost.reply) as env:
        await env.manager.open(NODE, node())
        await env.manager.claim(NODE, claim(pod()))
        lost.armed = True

        await env.manager.release(pod(), NODE)

        assert await stored(env) == node()


async def test_a_lost_reply_to_open_returns_the_created_ledger(kubeconfig):
    lost = Once("create")
    async with capacity_env(kubeconfig, after=lost.reply) as env:
        lost.armed = True

        assert await env.manager.open(NODE, node()) == node()


async def test_nothing_is_assumed_without_a_reply(kubeconfig):
    dead = False

    def silent(verb: str, code: int) -> None:
        if dead and verb == "update":
            raise Unreachable("no reply")

    async with capacity_env(kubeconfig, after=silent, watching=False) as env:
        await env.manager.open(NODE, node())
        dead = True
        # The first write is committed and its reply is lost; the live read shows it.
        assert await env.manager.claim(NODE, claim(pod())) == (CardGrant("node-1-gpu-0", 50),)

    def refuses() -> None:
        raise Unreachable("not sent")

    async with capacity_env(kubeconfig, before=refuses) as env:
        with pytest.raises(Unreachable):
            await env.manager.claim(NODE, claim(pod(1)))
        assert (await stored(env)).holders() == {pod()}


async def test_an_invalid_claim_does_not_affect_the_batch(kubeconfig):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node())

        bad, good = await gather(
            env.manager.claim(NODE, claim("No/Such_Name")),
            env.manager.claim(NODE, claim(pod())),
            return_exceptions=True,
        )

        assert isinstance(bad, Invalid)
        assert good == (CardGrant("node-1-gpu-0", 50),)
        assert (await stored(env)).holders() == {pod()}


async def test_a_queued_claim_whose_caller_gives_up_is_dropped(kubeconfig):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node())
        tasks = [
            asyncio.create_task(env.manager.claim(NODE, claim(pod(n), CardShares(1, 10)))) for n in range(3)
        ]
        await asyncio.sleep(0)
        tasks[1].cancel()

        await asyncio.wait(tasks)

        assert tasks[1].cancelled()
        assert (await stored(env)).holders() == {pod(0), pod(2)}
        assert env.manager.ledger(NODE) == await stored(env)


async def test_a_claim_in_flight_whose_caller_gives_up_holds_until_its_ttl(kubeconfig):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node())
        tasks = [
            asyncio.create_task(env.manager.claim(NODE, claim(pod(n), CardShares(1, 10)))) for n in range(3)
        ]

        def give_up() -> None:
            tasks[1].cancel()

        writing = env.manager._context.api.fenced(give_up)  # just before the write is sent
        object.__setattr__(env.manager._context, "api", writing)
        await asyncio.wait(tasks)

        assert tasks[1].cancelled()
        assert (await stored(env)).holders() == {pod(0), pod(1), pod(2)}
        assert (await stored(env)).held[pod(1)] == NOON


async def test_close_notices_a_holder_of_another_process(kubeconfig):
    async with capacity_env(kubeconfig, watching=False) as env:
        await env.manager.open(NODE, node())
        await foreign_hold(env.api, "other/pod", 10)

        assert not await env.manager.close(NODE)
        assert (await stored(env)).holders() == {"other/pod"}


async def test_a_deleted_ledger_is_not_written(kubeconfig):
    async with capacity_env(kubeconfig, watching=False) as env:
        await env.manager.open(NODE, node())
        await env.api.delete(kinds.NODE_RESERVATIONS, NODE)

        assert str(await env.manager.claim(NODE, claim(pod()))) == "the ledger has no node node-1"
        assert env.manager.ledger(NODE) is None


async def test_a_late_watch_never_reverts_our_writes(kubeconfig):
    async with capacity_env(kubeconfig, watching=False) as env:
        history: list[NodeReservation] = []
        await env.manager.open(NODE, node())
        history.append(await env.api.get(kinds.NODE_RESERVATIONS, NODE))
        for n in range(3):
            await env.manager.claim(NODE, claim(pod(n), CardShares(1, 10)))
            history.append(await env.api.get(kinds.NODE_RESERVATIONS, NODE))
        await foreign_hold(env.api, "other/pod", 10)
        history.append(await env.api.get(kinds.NODE_RESERVATIONS, NODE))

        seen = []
        for state in history:
            env.store.put(state)
            ledger = env.manager.ledger(NODE)
            assert ledger is not None
            seen.append(len(ledger.holders()))
        await env.manager.claim(NODE, claim(pod(3), CardShares(1, 10)))

        assert seen == [3, 3, 3, 3, 4]
        assert env.count("update", 409) == 0


async def test_a_restart_loses_nothing(kubeconfig):
    async with capacity_env(kubeconfig) as env:
        await env.manager.open(NODE, node())
        await env.manager.claim(NODE, claim(pod(0)))
        await env.manager.claim(NODE, claim("default/my-pod", until=None, reservation="example"))
        before = env.manager.ledger(NODE)

    async with capacity_env(kubeconfig) as another:
        assert another.manager.ledger(NODE) == before
        assert list(another.manager.nodes()) == [NODE]


async def test_with_sixty_four_writers_every_revision_is_valid(kubeconfig):
    async with api_client.connect(config.load(kubeconfig)) as api:
        async with capacity_env(kubeconfig) as first:
            await first.manager.open(NODE, node(*(percent(index) for index in range(8))))
            version = (await first.api.get(kinds.NODE_RESERVATIONS, NODE)).metadata.resource_version
        history = asyncio.create_task(_revisions(api, version, done="other/last"))
        desks = [capacity_env(kubeconfig) for _ in range(8)]
        processes = [await env.__aenter__() for env in desks]
        try:
            await gather(*(_customer(processes[n % 8], n) for n in range(64)))
            await foreign_hold(api, "other/last", 1)
            revisions = await history
        finally:
            for env in desks:
                await env.__aexit__(None, None, None)
        assert [fault for ledger in revisions for fault in ledgers.invariant_violations(ledger)] == []
        assert revisions[-1].holders() == {"other/last"}
        held = set().union(*(ledger.holders() for ledger in revisions))
        assert held == {pod(n) for n in range(64)} | {"other/last"}


async def _customer(env: CapacityEnv, number: int) -> None:
    """Claim until it is granted, then release."""
    got = await until_async(lambda: _asking(env, number), f"pod {number} to get a card")
    assert len(got) == 1
    await env.manager.release(pod(number), NODE)


async def _asking(env: CapacityEnv, number: int) -> Grant:
    answer = await env.manager.claim(NODE, claim(pod(number), CardShares(1, 45)))
    return () if isinstance(answer, Refusal) else answer


async def _revisions(api: Client, version: str, done: str) -> list[Ledger]:
    revisions: list[Ledger] = []
    async for batch in api.watch(kinds.NODE_RESERVATIONS, resource_version=version):
        revisions += [
            ledger_codec.decode(NODE, e.object.spec)
            for e in batch
            if isinstance(e, watch_protocol.ObjectEvent)
        ]
        if revisions and done in revisions[-1].holders():
            return revisions
    raise AssertionError("the watch ended early")


async def test_idle_nodes_cost_no_task(cluster):
    async with api_client.connect(config.load(cluster.kubeconfig)) as api:
        store: Store[NodeReservation] = Store(kinds.NODE_RESERVATIONS)
        book = CRDCapacityManager(api, store)
        tasks = len(asyncio.all_tasks())
        for number in range(5000):
            spec = ledger_codec.encode(node(name=f"node-{number}"))
            meta = {"name": f"node-{number}", "uid": f"{UID}-{number}", "resourceVersion": str(number)}
            store.put(_object(spec, meta))

        assert len(book.nodes()) == 5000
        assert len(asyncio.all_tasks()) == tasks


def _object(spec: Any, meta: dict[str, str]) -> NodeReservation:
    return msgspec.convert({"metadata": meta, "spec": msgspec.to_builtins(spec)}, NodeReservation)
