"""The book in the API server: others write, replies get lost, the watch is late; nothing is given twice."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from croupier.api import kinds
from croupier.api.mps import NodeReservation, translate
from croupier.book.crd import CRDCapacityManager
from croupier.book.writer import Contended, Rules
from croupier.core.ledgers import ledger as ledgers
from croupier.core.ledgers.ledger import Grant, Ledger, Part, Refused
from croupier.core.pods.want import Shares
from croupier.kube import client, config, watch
from croupier.kube.client import Client
from croupier.kube.errors import Invalid, Unreachable
from croupier.kube.store import Store
from tests.book.worlds import NODE, NOON, PATIENT, UID, Desk, claim, desk, node, percent, pod
from tests.kube.waiting import until, until_async

RAW = kinds.NODE_RESERVATIONS.raw


@pytest.fixture
def kubeconfig(cluster: Any, clean_cluster: None) -> Path:
    found: Path = cluster.kubeconfig
    return found


async def stored(one: Desk) -> Ledger:
    """What the API server says, whatever anybody believes."""
    return translate.read(NODE, (await one.api.get(kinds.NODE_RESERVATIONS, NODE)).spec)


async def foreign_hold(api: Client, holder: str, share: int, card: int = 0) -> None:
    """Somebody who is not us takes a share."""
    found = await api.get(RAW, NODE)
    found["spec"]["cards"][card].setdefault("holders", {})[holder] = share
    await api.update(RAW, found)


async def test_many_claims_share_a_write(kubeconfig):
    async with desk(kubeconfig) as one:
        await one.book.open(NODE, node())
        answers = await asyncio.gather(
            *(one.book.claim(NODE, claim(pod(n), Shares(1, 5))) for n in range(30))
        )

        assert not any(isinstance(answer, Refused) for answer in answers)
        assert one.count("update") == 1
        assert (await stored(one)).holders() == {pod(n) for n in range(30)}


async def test_releases_come_first_then_priority_then_arrival(kubeconfig):
    async with desk(kubeconfig) as one:
        await one.book.open(NODE, node(percent()))
        await one.book.claim(NODE, claim(pod(0), Shares(1)))

        low, high, later, _ = await asyncio.gather(
            one.book.claim(NODE, claim(pod(1), Shares(1, 60), priority=1)),
            one.book.claim(NODE, claim(pod(2), Shares(1, 60), priority=9)),
            one.book.claim(NODE, claim(pod(3), Shares(1, 40), priority=9)),
            one.book.release(pod(0), NODE),
        )

        assert isinstance(low, Refused)
        assert (high, later) == ((Part("node-1-gpu-0", 60),), (Part("node-1-gpu-0", 40),))
        assert one.count("update") == 2


async def test_what_changes_nothing_is_not_written(kubeconfig):
    async with desk(kubeconfig) as one:
        await one.book.open(NODE, node())
        await one.book.claim(NODE, claim(pod()))
        written = one.count("update")

        await one.book.claim(NODE, claim(pod()))
        await one.book.claim(NODE, claim(pod(1), Shares(3)))
        await one.book.release(pod(7), NODE)
        await one.book.amend(NODE, lambda ledger: ledger)

        assert one.count("update") == written
        assert one.count("get") == 0


async def test_lazy_changes_wait_for_company(kubeconfig):
    async with desk(kubeconfig, rules=PATIENT) as one:
        await one.book.open(NODE, node())
        await asyncio.gather(*(one.book.claim(NODE, claim(pod(n), Shares(1, 10))) for n in range(5)))
        written = one.count("update")

        binds = [one.book.amend(NODE, _bind(pod(n)), lazy=True) for n in range(5)]
        *_, last = await asyncio.gather(*binds, one.book.release(pod(9), NODE), return_exceptions=True)

        assert last is None
        assert one.count("update") == written + 1
        assert not (await stored(one)).held


async def test_lazy_changes_do_not_wait_for_ever(kubeconfig):
    async with desk(kubeconfig, rules=Rules(linger=0.05)) as one:
        await one.book.open(NODE, node())
        await asyncio.gather(*(one.book.claim(NODE, claim(pod(n), Shares(1, 10))) for n in range(5)))
        written = one.count("update")

        await asyncio.gather(*(one.book.amend(NODE, _bind(pod(n)), lazy=True) for n in range(5)))

        assert one.count("update") == written + 1


async def test_a_claim_that_comes_alone_waits_for_nobody(kubeconfig):
    async with desk(kubeconfig, rules=Rules(gather=600.0)) as one, asyncio.timeout(60):
        await one.book.open(NODE, node())

        assert not isinstance(await one.book.claim(NODE, claim(pod(1), Shares(1, 10))), Refused)


async def test_a_write_that_gathers_carries_those_who_come_meanwhile(kubeconfig):
    async with desk(kubeconfig, rules=Rules(gather=2.0)) as one:
        await one.book.open(NODE, node())
        await one.book.claim(NODE, claim(pod(0), Shares(1, 10)))
        written = one.count("update")

        first = asyncio.create_task(one.book.claim(NODE, claim(pod(1), Shares(1, 10))))
        await asyncio.sleep(0.05)  # an idle writer would have sent the first by now
        second = asyncio.create_task(one.book.claim(NODE, claim(pod(2), Shares(1, 10))))
        await asyncio.gather(first, second)

        assert one.count("update") == written + 1


def _bind(holder: str) -> Callable[[Ledger], Ledger]:
    return lambda ledger: ledgers.bind(ledger, holder)


async def test_a_foreign_write_in_between_is_read_and_everything_decided_again(kubeconfig):
    async with desk(kubeconfig, watching=False) as one:
        await one.book.open(NODE, node())
        await foreign_hold(one.api, "other/pod", 80)

        answers = await asyncio.gather(
            one.book.claim(NODE, claim(pod(0), Shares(2, 20))),
            one.book.claim(NODE, claim(pod(1), Shares(2, 20))),
        )

        assert one.count("update", 409) == 1
        assert isinstance(answers[1], Refused)
        now = await stored(one)
        assert now.holders() == {"other/pod", pod(0)}
        assert one.book.ledger(NODE) == now


async def test_what_others_wrote_is_seen_without_asking(kubeconfig):
    async with desk(kubeconfig) as one, desk(kubeconfig) as other:
        await one.book.open(NODE, node())
        await one.book.claim(NODE, claim(pod(0)))
        await until(lambda: (found := other.book.ledger(NODE)) and found.holders(), "the other to see it")
        await other.book.claim(NODE, claim(pod(1)))
        await until(lambda: (found := one.book.ledger(NODE)) and len(found.holders()) == 2, "us to see it")

        await one.book.release(pod(1), NODE)

        assert one.count("update", 409) == other.count("update", 409) == 0
        assert (await stored(one)).holders() == {pod(0)}


async def test_a_ledger_that_others_never_leave_alone_is_given_up_with_a_sentence(kubeconfig):
    async with desk(kubeconfig, watching=False, rules=Rules(tries=1)) as one:
        await one.book.open(NODE, node())
        await foreign_hold(one.api, "other/pod", 10)

        with pytest.raises(Contended, match="others changed the ledger of node-1 1 times in a row"):
            await one.book.claim(NODE, claim(pod()))

        assert one.book.ledger(NODE) == node()
        assert await one.book.claim(NODE, claim(pod())) == (Part("node-1-gpu-1", 50),)


class Once:
    """Loses the first reply, or the first write, of a kind."""

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
    async with desk(kubeconfig, **hooks) as one:
        await one.book.open(NODE, node())
        lost.armed = True

        answers = await asyncio.gather(
            *(one.book.claim(NODE, claim(pod(n), Shares(1, 40))) for n in range(5))
        )

        now = await stored(one)
        assert [isinstance(answer, Refused) for answer in answers] == [False] * 4 + [True]
        assert [now.grant(pod(n)) for n in range(4)] == answers[:4]
        assert one.book.ledger(NODE) == now
        assert not lost.armed


async def test_a_lost_reply_to_a_release_frees_once(kubeconfig):
    lost = Once("update")
    async with desk(kubeconfig, after=lost.reply) as one:
        await one.book.open(NODE, node())
        await one.book.claim(NODE, claim(pod()))
        lost.armed = True

        await one.book.release(pod(), NODE)

        assert await stored(one) == node()


async def test_a_lost_reply_to_open_finds_what_was_made(kubeconfig):
    lost = Once("create")
    async with desk(kubeconfig, after=lost.reply) as one:
        lost.armed = True

        assert await one.book.open(NODE, node()) == node()


async def test_while_no_reply_comes_nothing_is_assumed(kubeconfig):
    dead = False

    def silent(verb: str, code: int) -> None:
        if dead and verb == "update":
            raise Unreachable("no reply")

    async with desk(kubeconfig, after=silent, watching=False) as one:
        await one.book.open(NODE, node())
        dead = True
        # The first write is committed, its reply lost; what is read then says so, and no other is needed.
        assert await one.book.claim(NODE, claim(pod())) == (Part("node-1-gpu-0", 50),)

    def refuses() -> None:
        raise Unreachable("not sent")

    async with desk(kubeconfig, before=refuses) as one:
        with pytest.raises(Unreachable):
            await one.book.claim(NODE, claim(pod(1)))
        assert (await stored(one)).holders() == {pod()}


async def test_a_claim_the_api_server_refuses_does_not_spoil_the_batch(kubeconfig):
    async with desk(kubeconfig) as one:
        await one.book.open(NODE, node())

        bad, good = await asyncio.gather(
            one.book.claim(NODE, claim("No/Such_Name")),
            one.book.claim(NODE, claim(pod())),
            return_exceptions=True,
        )

        assert isinstance(bad, Invalid)
        assert good == (Part("node-1-gpu-0", 50),)
        assert (await stored(one)).holders() == {pod()}


async def test_who_gives_up_before_his_turn_gets_nothing_and_the_others_all(kubeconfig):
    async with desk(kubeconfig) as one:
        await one.book.open(NODE, node())
        tasks = [asyncio.create_task(one.book.claim(NODE, claim(pod(n), Shares(1, 10)))) for n in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()

        await asyncio.wait(tasks)

        assert tasks[1].cancelled()
        assert (await stored(one)).holders() == {pod(0), pod(2)}
        assert one.book.ledger(NODE) == await stored(one)


async def test_who_gives_up_while_it_is_written_holds_until_his_time_is_over(kubeconfig):
    async with desk(kubeconfig) as one:
        await one.book.open(NODE, node())
        tasks = [asyncio.create_task(one.book.claim(NODE, claim(pod(n), Shares(1, 10)))) for n in range(3)]

        def give_up() -> None:
            tasks[1].cancel()

        writing = one.book._desk.api.fenced(give_up)  # the moment before the write leaves
        object.__setattr__(one.book._desk, "api", writing)
        await asyncio.wait(tasks)

        assert tasks[1].cancelled()
        assert (await stored(one)).holders() == {pod(0), pod(1), pod(2)}
        assert (await stored(one)).held[pod(1)] == NOON


async def test_close_sees_a_holder_it_did_not_know_of(kubeconfig):
    async with desk(kubeconfig, watching=False) as one:
        await one.book.open(NODE, node())
        await foreign_hold(one.api, "other/pod", 10)

        assert not await one.book.close(NODE)
        assert (await stored(one)).holders() == {"other/pod"}


async def test_a_ledger_that_vanished_is_not_written_to(kubeconfig):
    async with desk(kubeconfig, watching=False) as one:
        await one.book.open(NODE, node())
        await one.api.delete(kinds.NODE_RESERVATIONS, NODE)

        assert str(await one.book.claim(NODE, claim(pod()))) == "the ledger has no node node-1"
        assert one.book.ledger(NODE) is None


async def test_a_late_watch_never_takes_back_what_we_wrote(kubeconfig):
    async with desk(kubeconfig, watching=False) as one:
        history: list[NodeReservation] = []
        await one.book.open(NODE, node())
        history.append(await one.api.get(kinds.NODE_RESERVATIONS, NODE))
        for n in range(3):
            await one.book.claim(NODE, claim(pod(n), Shares(1, 10)))
            history.append(await one.api.get(kinds.NODE_RESERVATIONS, NODE))
        await foreign_hold(one.api, "other/pod", 10)
        history.append(await one.api.get(kinds.NODE_RESERVATIONS, NODE))

        seen = []
        for state in history:
            one.store.put(state)
            found = one.book.ledger(NODE)
            assert found is not None
            seen.append(len(found.holders()))
        await one.book.claim(NODE, claim(pod(3), Shares(1, 10)))

        assert seen == [3, 3, 3, 3, 4]
        assert one.count("update", 409) == 0


async def test_a_restart_forgets_nothing(kubeconfig):
    async with desk(kubeconfig) as one:
        await one.book.open(NODE, node())
        await one.book.claim(NODE, claim(pod(0)))
        await one.book.claim(NODE, claim("default/my-pod", until=None, reservation="example"))
        before = one.book.ledger(NODE)

    async with desk(kubeconfig) as another:
        assert another.book.ledger(NODE) == before
        assert list(another.book.nodes()) == [NODE]


async def test_sixty_four_writers_on_one_node_and_every_revision_is_lawful(kubeconfig):
    async with client.connect(config.load(kubeconfig)) as api:
        async with desk(kubeconfig) as first:
            await first.book.open(NODE, node(*(percent(index) for index in range(8))))
            version = (await first.api.get(kinds.NODE_RESERVATIONS, NODE)).metadata.resource_version
        history = asyncio.create_task(_revisions(api, version, done="other/last"))
        desks = [desk(kubeconfig) for _ in range(8)]
        processes = [await one.__aenter__() for one in desks]
        try:
            await asyncio.gather(*(_customer(processes[n % 8], n) for n in range(64)))
            await foreign_hold(api, "other/last", 1)
            revisions = await history
        finally:
            for one in desks:
                await one.__aexit__(None, None, None)
        assert [fault for ledger in revisions for fault in ledgers.faults(ledger)] == []
        assert revisions[-1].holders() == {"other/last"}
        held = set().union(*(ledger.holders() for ledger in revisions))
        assert held == {pod(n) for n in range(64)} | {"other/last"}


async def _customer(one: Desk, number: int) -> None:
    """Comes until it gets what it wants, and gives it back."""
    got = await until_async(lambda: _asking(one, number), f"pod {number} to get a card")
    assert len(got) == 1
    await one.book.release(pod(number), NODE)


async def _asking(one: Desk, number: int) -> Grant:
    answer = await one.book.claim(NODE, claim(pod(number), Shares(1, 45)))
    return () if isinstance(answer, Refused) else answer


async def _revisions(api: Client, version: str, done: str) -> list[Ledger]:
    found: list[Ledger] = []
    async for batch in api.watch(kinds.NODE_RESERVATIONS, resource_version=version):
        found += [translate.read(NODE, e.object.spec) for e in batch if isinstance(e, watch.Change)]
        if found and done in found[-1].holders():
            return found
    raise AssertionError("the watch ended early")


async def test_idle_nodes_cost_no_task(cluster):
    async with client.connect(config.load(cluster.kubeconfig)) as api:
        store: Store[NodeReservation] = Store(kinds.NODE_RESERVATIONS)
        book = CRDCapacityManager(api, store)
        tasks = len(asyncio.all_tasks())
        for number in range(5000):
            spec = translate.write(node(name=f"node-{number}"))
            meta = {"name": f"node-{number}", "uid": f"{UID}-{number}", "resourceVersion": str(number)}
            store.put(_object(spec, meta))

        assert len(book.nodes()) == 5000
        assert len(asyncio.all_tasks()) == tasks


def _object(spec: Any, meta: dict[str, str]) -> NodeReservation:
    return msgspec.convert({"metadata": meta, "spec": msgspec.to_builtins(spec)}, NodeReservation)
