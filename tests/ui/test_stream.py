"""The stream: a client that is cut anywhere has the same rows as one that never was, and none is half-fed."""

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from croupier.ui import redaction, stream
from croupier.ui.metrics import PageMetrics
from croupier.ui.rights import ALL, Rights
from croupier.ui.stream import MAX_BEHIND, MAX_STREAMS, StreamClient, StreamHub, TooManyStreams
from croupier.ui.tables import PARTS, Tables, fold
from tests.ui import redaction_worlds

Rows = dict[str, dict[str, Any]]
TENANT = Rights(namespaces=frozenset({"apple"}), pools=frozenset({"red"}))
EXAMPLES = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def hub_of(tables: Tables) -> StreamHub:
    return StreamHub(tables, lambda: 7.0, PageMetrics(CollectorRegistry()))


def snapshot(tables: Tables, rights: Rights) -> Rows:
    found: Rows = {}
    for part in PARTS:
        cut = redaction.tables(tables.rows(part), rights, tables)
        found |= {table: dict(rows) for table, rows in cut.items()}
    return json.loads(redaction_worlds.encoded(found))  # type: ignore[no-any-return]  # as a browser gets it


def events(chunk: bytes) -> list[dict[str, str]]:
    """The fields of each event."""
    blocks = [block.split("\n") for block in chunk.decode().split("\n\n") if block]
    return [dict(line.split(": ", 1) for line in block) for block in blocks]


@dataclass
class Browser:
    """Holds a copy of the rows as the page does."""

    hub: StreamHub
    tables: Tables
    rights: Rights
    rows: Rows = field(default_factory=dict)
    position: str = ""
    resets: int = 0
    client: StreamClient | None = None

    def load(self) -> None:
        self.rows = snapshot(self.tables, self.rights)
        self.position = f"{self.tables.process}.{self.tables.seq}"

    def connect(self) -> None:
        self.client = self.hub.open(self.rights, self.position)

    def cut(self) -> None:
        """What was sent and not read is lost."""
        if self.client is not None:
            self.hub.drop(self.client)
        self.client = None

    async def read(self) -> None:
        if self.client is None:
            self.connect()
        assert self.client is not None
        for event in events(await self.client.read()):
            self._take(event)

    def _take(self, event: dict[str, str]) -> None:
        match event.get("event"):
            case "delta":
                fold(self.rows, json.loads(event["data"])["tables"])
            case "reset":
                self.resets += 1
                self.cut()
                self.load()
        self.position = event.get("id", self.position)


def shown(rows: Rows) -> Rows:
    return {table: found for table, found in rows.items() if found}


@EXAMPLES
@given(
    st.lists(redaction_worlds.worlds(), min_size=2, max_size=4),
    redaction_worlds.rights(),
    st.lists(st.sampled_from(["read", "cut", "nothing"]), min_size=4, max_size=4),
    st.sampled_from([1, 20]),
)
def test_a_client_that_is_cut_has_the_same_rows_as_one_that_never_was(worlds, rights, acts, kept):
    async def story() -> None:
        tables = Tables("test", kept=kept)
        hub = hub_of(tables)
        steady, shaky = (Browser(hub, tables, rights) for _ in range(2))
        for browser in (steady, shaky):
            browser.load()
            browser.connect()
        for at, (world, act) in enumerate(zip(worlds, acts, strict=False)):
            redaction_worlds.fill(tables, world)
            if (delta := tables.flush(at)) is not None:
                hub.publish(delta)
            hub.beat(at)
            await steady.read()
            match act:
                case "read":
                    await shaky.read()
                case "cut":
                    shaky.cut()
        hub.beat(99)
        await steady.read()
        await shaky.read()
        assert shown(steady.rows) == shown(snapshot(tables, rights))
        assert shown(shaky.rows) == shown(steady.rows)
        assert steady.resets == 0

    run(story())


LOST = {
    "another process": "other.1",
    "the future": "test.99",
    "forgotten": "test.0",
    "not a position": "nonsense",
    "not a number": "test.x",
    "a sign": "test.-1",
    "another digit": "test.²",
}


@pytest.mark.parametrize("after", LOST.values(), ids=LOST)
def test_a_position_that_is_not_known_is_reset_and_nothing_else(after):
    async def story() -> None:
        tables = Tables("test", kept=1)
        for at in range(3):
            tables.put("cards", "a", at + 1)
            tables.flush(at)
        hub = hub_of(tables)
        client = hub.open(ALL, after)
        (event,) = events(await client.read())
        assert event["event"] == "reset"
        assert json.loads(event["data"]) == {"reason": stream.FORGOTTEN}
        assert (await client.read(), len(hub)) == (b"", 0)

    run(story())


def test_a_client_that_does_not_read_is_reset_and_never_half_fed():
    """Other people's bug: a backlog dropped without a new snapshot (radar#598)."""

    async def story() -> None:
        tables = Tables("test")
        hub = hub_of(tables)
        slow, fast = (Browser(hub, tables, ALL) for _ in range(2))
        for browser in (slow, fast):
            browser.load()
            browser.connect()
        for at in range(30):
            tables.put("cards", str(at), "x" * (MAX_BEHIND // 20))
            delta = tables.flush(at)
            assert delta is not None
            hub.publish(delta)
            await fast.read()
        assert slow.client is not None
        sent = await slow.client.read()
        assert [event["event"] for event in events(sent)] == ["reset"]
        assert json.loads(events(sent)[0]["data"]) == {"reason": stream.TOO_SLOW}
        assert await slow.client.read() == b"", "the stream ends"
        assert (fast.resets, shown(fast.rows)) == (0, shown(snapshot(tables, ALL)))

    run(story())


def test_a_client_that_missed_too_much_is_reset():
    async def story() -> None:
        tables = Tables("test")
        for at in range(3):
            tables.put("cards", str(at), "x" * (MAX_BEHIND // 2))
            tables.flush(at)
        sent = await hub_of(tables).open(ALL, "test.0").read()
        assert [event["event"] for event in events(sent)] == ["reset"]

    run(story())


def test_there_are_at_most_200_streams():
    hub = hub_of(Tables("test"))
    clients = [hub.open((ALL, TENANT)[number % 2], "") for number in range(MAX_STREAMS)]
    with pytest.raises(TooManyStreams, match="already has 200 open streams; close other tabs"):
        hub.open(ALL, "")
    hub.drop(clients[0])
    hub.open(ALL, "")
    assert len(hub) == MAX_STREAMS


def test_viewers_with_the_same_rights_share_one_encoding(monkeypatch):
    """Other people's bug: work for every client and event (kueue#12535)."""
    encoded: list[Rights] = []
    cut = redaction.delta

    def counted(changed: Any, before: Any, rights: Rights, names: Any) -> Any:
        encoded.append(rights)
        return cut(changed, before, rights, names)

    monkeypatch.setattr(redaction, "delta", counted)

    async def story() -> None:
        tables = Tables("test")
        hub = hub_of(tables)
        others = [hub.open(TENANT, "") for _ in range(5)]
        own = [hub.open(ALL, "") for _ in range(5)]
        tables.put("waiting", "apple/mine", {})
        tables.put("waiting", "pear/secret", {})
        delta = tables.flush(1)
        assert delta is not None
        hub.publish(delta)
        assert sorted(encoded, key=repr) == sorted([TENANT, ALL], key=repr)
        hub.open(TENANT, "test.0")
        assert len(encoded) == 2, "a client that comes back gets the same bytes"
        for client, sees in [*((one, False) for one in others), *((one, True) for one in own)]:
            sent = await client.read()
            assert (b"pear/secret" in sent, b"apple/mine" in sent) == (sees, True)

    run(story())


def test_beats_tell_the_contact_and_the_position():
    async def story() -> None:
        tables = Tables("test")
        hub = hub_of(tables)
        client = hub.open(ALL, "")
        hub.beat(42)
        first, opened, beat = events(await client.read())
        assert first == {"retry": "1000"}
        assert [event["event"] for event in (opened, beat)] == ["beat", "beat"]
        assert (json.loads(beat["data"]), beat["id"]) == ({"at": 42, "contact": 7}, "test.0")
        hub.close()
        assert await client.read() == b"", "the process stops"
        assert events(await hub.open(ALL, "").read())[0]["event"] == "reset"

    run(story())
