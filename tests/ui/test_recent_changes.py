"""What the page tells of changes: one sentence each, and nothing of the state at its start."""

from typing import Any

import pytest

from croupier.ui import redaction, rows
from croupier.ui.recent_changes import MAX_KEPT, RATE, RecentChanges
from croupier.ui.rights import Rights
from croupier.ui.tables import Tables

POD = "team/job/uid"
PERCENT, EXCLUSIVE, MIG, TIME_SLICE = 1, 2, 3, 4
ASSIGNED, FAULTED = 3, 4


class Story:
    """Tables with their changes."""

    def __init__(self) -> None:
        self.tables = Tables("test")
        self.changes = RecentChanges(self.tables)
        self._at = 0

    def put(self, table: str, **changed: Any) -> "Story":
        for key, value in changed.items():
            self.tables.put(table, key.replace("__", "/").replace("_", "-"), value)
        return self

    def publish(self) -> list[tuple[str, str, str]]:
        """Publish; the kind, object and text of the new changes."""
        self._at += 1
        known = set(self.rows())
        self.changes.update(self._at)
        self.tables.flush(self._at)
        new = [row for key, row in self.rows().items() if key not in known]
        assert all(row["at"] == self._at for row in new)
        return [(row["kind"], row["object"], row["text"]) for row in new]

    def rows(self) -> dict[str, Any]:
        return dict(self.tables.rows("names")["changes"])

    def number(self, holder: str = POD) -> int:
        return self.tables.number("node-1", holder)


def card(**changes: Any) -> tuple[Any, ...]:
    fields = {
        "node": "node-1",
        "index": 0,
        "mode": PERCENT,
        "pool": "red",
        "state": ASSIGNED,
        "flags": 0,
        "capacity": 100,
        "free": 100,
        "holders": (),
        "slots": (),
        "product": "H100",
        "reason": "",
        "assigned": "",
        "offers": (),
        "ledger_pool": "",
    }
    return tuple({**fields, **changes}.values())


def node(**changes: Any) -> dict[str, Any]:
    return {"silent": False, "cordoned": False, "zone": "a", **changes}


def pool(*conditions: tuple[str, str, str], applied: str = "MPS") -> dict[str, Any]:
    listed = [
        {"type": kind, "status": status, "reason": "Why", "message": message}
        for kind, status, message in conditions
    ]
    return {"conditions": listed, "applied": applied}


def reservation(state: str, message: str = "") -> dict[str, Any]:
    return {"state": state, "message": message}


CHANGES: dict[str, tuple[str, Any, Any, list[str]]] = {
    "a card appears": ("cards", None, card(), ["appeared on node node-1"]),
    "a card disappears": ("cards", card(), None, ["is no longer known on node node-1"]),
    "a card joins a pool": ("cards", card(pool=""), card(), ["joined pool red"]),
    "a card leaves its pool": ("cards", card(), card(pool=""), ["left pool red"]),
    "a card fails": (
        "cards",
        card(),
        card(state=FAULTED, reason="XID 79"),
        ["is Faulted: XID 79"],
    ),
    "an unknown state is no news": ("cards", card(), card(state=0), []),
    "a drain": (
        "cards",
        card(),
        card(flags=rows.DRAINED, reason="fan"),
        ["was drained: fan"],
    ),
    "the end of a drain": ("cards", card(flags=rows.DRAINED), card(), ["is no longer drained"]),
    "retired": ("cards", card(), card(flags=rows.RETIRED), ["was retired"]),
    "used again": ("cards", card(flags=rows.RETIRED), card(), ["is no longer retired"]),
    "a drain takes the card out of the ledger": (
        "cards",
        card(),
        card(flags=rows.DRAINED | rows.UNHEALTHY),
        ["was drained"],
    ),
    "unhealthy": ("cards", card(), card(flags=rows.UNHEALTHY), ["is unhealthy"]),
    "healthy": ("cards", card(flags=rows.UNHEALTHY), card(), ["is healthy again"]),
    "new partitions": ("cards", card(), card(flags=rows.REPARTITIONING), ["is being changed"]),
    "partitioned": ("cards", card(flags=rows.REPARTITIONING), card(), ["is no longer being changed"]),
    "two flags at once": (
        "cards",
        card(flags=rows.DRAINED),
        card(flags=rows.RETIRED),
        ["is no longer drained", "was retired"],
    ),
    "a silent agent is told of the node": ("cards", card(), card(flags=rows.SILENT), []),
    "a node with cards": ("nodes", None, node(), ["reports cards"]),
    "a node without cards": ("nodes", node(), None, ["has no cards any more"]),
    "a silent agent": ("nodes", node(), node(silent=True), ["its agent is silent"]),
    "an agent that reports": ("nodes", node(silent=True), node(), ["its agent reports again"]),
    "cordoned": ("nodes", node(), node(cordoned=True), ["was cordoned"]),
    "uncordoned": ("nodes", node(cordoned=True), node(), ["was uncordoned"]),
    "another zone is no news": ("nodes", node(), node(zone="b"), []),
    "a pool": ("pools", None, pool(), ["was created"]),
    "a deleted pool": ("pools", pool(), None, ["was deleted"]),
    "a condition": (
        "pools",
        pool(("Available", "True", "")),
        pool(("Available", "False", "no card is free")),
        ["Available is False: no card is free"],
    ),
    "a condition without a message": ("pools", pool(), pool(("Ready", "True", "")), ["Ready is True: Why"]),
    "another message is no news": (
        "pools",
        pool(("Available", "True", "a")),
        pool(("Available", "True", "b")),
        [],
    ),
    "other sharing": ("pools", pool(), pool(applied="MIG 1g.10gb"), ["shares its cards as MIG 1g.10gb"]),
    "a waiting pod": ("waiting", None, {"asks": ["2 cards", "1 slot"]}, ["waits for 2 cards and 1 slot"]),
    "a waiting pod without a request": ("waiting", None, {"asks": []}, ["waits"]),
    "a pod that does not wait any more": ("waiting", {"asks": []}, None, []),
    "another reason to wait is no news": ("waiting", {"asks": [], "x": 1}, {"asks": [], "x": 2}, []),
    "a Reservation": ("reservations", None, reservation("Pending"), ["is Pending"]),
    "a Reservation that fails": (
        "reservations",
        reservation("Pending"),
        reservation("Failed", "no cards"),
        ["is Failed: no cards"],
    ),
    "the same state is no news": ("reservations", reservation("Held"), reservation("Held", "x"), []),
    "a deleted Reservation": ("reservations", reservation("Held"), None, ["was deleted"]),
}


@pytest.mark.parametrize(("table", "old", "new", "texts"), CHANGES.values(), ids=CHANGES)
def test_each_change_has_its_sentence(table, old, new, texts):
    story = Story()
    story.put(table, team__it=old).publish()
    told = story.put(table, team__it=new).publish()
    assert [text for _, _, text in told] == texts
    assert {name for _, name, _ in told} <= {"team/it"}


@pytest.mark.parametrize(("table", "old", "new", "texts"), CHANGES.values(), ids=CHANGES)
def test_the_first_rows_are_the_state_and_no_change(table, old, new, texts):
    assert Story().put(table, team__it=new).publish() == []


HOLDINGS: dict[str, tuple[dict[str, Any], str]] = {
    "a share": ({"holders": ((1, 40),)}, "40 % of card card-1"),
    "a whole card": ({"mode": EXCLUSIVE, "holders": ((1, 100),)}, "card card-1"),
    "a slice": ({"mode": TIME_SLICE, "holders": ((1, 1),)}, "1 slice of card card-1"),
    "slices": ({"mode": TIME_SLICE, "holders": ((1, 3),)}, "3 slices of card card-1"),
    "a slot": ({"mode": MIG, "slots": (("1g.10gb-0", "1g.10gb", 0, 1, 1),)}, "MIG 1g.10gb of card card-1"),
}


@pytest.mark.parametrize(("held", "part"), HOLDINGS.values(), ids=HOLDINGS)
def test_holdings_begin_and_end(held, part):
    story = Story()
    assert story.number() == 1
    free = card(mode=held.get("mode", PERCENT))
    story.put("cards", card_1=free).publish()
    begun = story.put("cards", card_1=card(**held)).publish()
    assert begun == [("Pod", "team/job", f"holds {part} on node node-1")]
    ended = story.put("cards", card_1=free).publish()
    assert ended == [("Pod", "team/job", f"no longer holds {part} on node node-1")]


def test_a_pod_on_eight_cards_is_one_change():
    """Also when it ends: averages and repetitions per card were other people's bugs (HAMi-WebUI#268)."""
    story = Story()
    cards = [f"card_{index}" for index in range(8)]
    story.put("cards", **dict.fromkeys(cards, card())).publish()
    number = story.number()
    told = story.put("cards", **dict.fromkeys(cards, card(holders=((number, 100),)))).publish()
    assert told == [("Pod", "team/job", "holds 8 cards on node node-1")]
    told = story.put("cards", **dict.fromkeys(cards, card())).publish()
    assert told == [("Pod", "team/job", "no longer holds 8 cards on node node-1")]


def test_a_share_that_another_pod_frees_is_no_change_of_the_first():
    story = Story()
    first, second = story.number(), story.number("team/other/uid")
    story.put("cards", card_1=card(holders=((first, 40), (second, 40)))).publish()
    told = story.put("cards", card_1=card(holders=((first, 40),))).publish()
    assert told == [("Pod", "team/other", "no longer holds 40 % of card card-1 on node node-1")]


def test_many_changes_at_once_are_counted():
    story = Story()
    story.publish()
    told = story.put("nodes", **{f"node_{number}": node() for number in range(RATE.burst + 7)}).publish()
    assert [text for _, _, text in told] == ["reports cards"] * RATE.burst

    later = story.put("nodes", node_1=node(silent=True)).publish()
    assert later == [("Node", "node-1", "its agent is silent"), ("Cluster", "cluster", "had 7 more changes")]
    assert story.publish() == [], "they are told once"


def test_a_flood_costs_the_stream_a_few_changes_a_second():
    """At a hundred placements a second the changes would be most of the bytes."""
    story = Story()
    story.publish()
    told = 0
    for second in range(1, 61):
        flood = {f"node_{number}": node(silent=second % 2 == 1) for number in range(100)}
        told += len(story.put("nodes", **flood).publish())
    assert told <= RATE.burst + 60 * RATE.per_second


def test_the_newest_are_kept():
    story = Story()
    story.publish()
    for number in range(MAX_KEPT + 30):
        story.put("nodes", **{f"node_{number}": node()}).publish()
    kept = [row["object"] for _, row in sorted(story.rows().items(), key=lambda entry: int(entry[0]))]
    assert kept == [f"node-{number}" for number in range(30, MAX_KEPT + 30)]


def test_changes_of_a_namespace_are_told_to_those_who_see_it():
    story = Story()
    number = story.number()
    story.put("cards", card_1=card()).publish()
    story.put("cards", card_1=card(holders=((number, 10),)))
    story.put("waiting", other__pod={"asks": []}).put("reservations", team__it=reservation("Held"))
    story.put("nodes", node_1=node()).put("pools", red=pool()).publish()

    def told(rights: Rights) -> set[str]:
        seen = redaction.tables({"changes": story.rows()}, rights, story.tables)["changes"]
        return {row["object"] for row in seen.values()}

    assert told(Rights(namespaces=frozenset({"team"}))) == {"team/job", "team/it"}
    assert told(Rights(namespaces=frozenset({"other"}))) == {"other/pod"}
    assert told(Rights()) == set()
    assert told(Rights(cards=True)) == {"node-1"}
    assert told(Rights(pools=None)) == {"red"}
    assert told(Rights(everything=True)) == {"team/job", "team/it", "other/pod", "node-1", "red"}


def test_unknown_holders_are_not_told():
    story = Story()
    story.put("cards", card_1=card()).publish()
    assert story.put("cards", card_1=card(holders=((77, 10),))).publish() == []
