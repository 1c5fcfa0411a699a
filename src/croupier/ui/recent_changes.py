"""The newest changes of the cluster as sentences, derived from the rows that change. No I/O.

The first rows after the start are the state and not a change, so they are not told.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from croupier.core.ledger import holder as holder_names
from croupier.kube.controller.rate_limit import RateLimit, TokenBucket
from croupier.ui import hold_lines, rows
from croupier.ui.tables import FLAGS, HOLDERS, MODE, NODE, POOL, REASON, SLOTS, STATE, Tables

MAX_KEPT: Final = 200
RATE: Final = RateLimit(2, 50)
"""Changes that are told; more are only counted."""
_STATES: Final = {number: name for name, number in rows.STATES.items()}
_FLAG_TEXTS: Final = {
    rows.DRAINED: ("was drained", "is no longer drained"),
    rows.RETIRED: ("was retired", "is no longer retired"),
    rows.UNHEALTHY: ("is unhealthy", "is healthy again"),
    rows.REPARTITIONING: ("is being changed", "is no longer being changed"),
}


class Change(NamedTuple):
    kind: str
    object: str
    text: str
    namespace: str = ""
    """Who may list its pods sees the change; empty: who may see the object."""


class RecentChanges:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._kept: deque[str] = deque()
        self._last = 0
        self._started = False
        self._bucket = TokenBucket(RATE)
        self._untold = 0

    def update(self, at: float) -> None:
        """Put a row for each change that the next flush publishes."""
        if not self._started:
            self._started = True
            return
        found = list(self._found())
        told = [change for change in found if self._bucket.allows(at)]
        self._untold += len(found) - len(told)
        if self._untold and len(told) == len(found) and self._bucket.allows(at):
            told.append(Change("Cluster", "cluster", f"had {self._untold} more changes"))
            self._untold = 0
        for change in told:
            self._last += 1
            self._kept.append(str(self._last))
            self._tables.put("changes", str(self._last), {"at": at, **change._asdict()})
        while len(self._kept) > MAX_KEPT:
            self._tables.put("changes", self._kept.popleft(), None)

    def _found(self) -> Iterator[Change]:
        tables, pending = self._tables, self._tables.pending()
        yield from self._holdings(pending.get("cards", {}))
        for table, tell in _TOLD.items():
            for key, new in pending.get(table, {}).items():
                yield from tell(key, tables.row(table, key), new)

    def _holdings(self, cards: Mapping[str, Any]) -> Iterator[Change]:
        """One change for each holder and node, however many cards it holds there."""
        begun: dict[tuple[str, str], list[tuple[str, str]]] = {}
        ended: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for card, new in cards.items():
            before, after = self._holders(self._tables.row("cards", card)), self._holders(new)
            for holder in after.keys() - before.keys():
                begun.setdefault(holder, []).append((card, after[holder]))
            for holder in before.keys() - after.keys():
                ended.setdefault(holder, []).append((card, before[holder]))
        for verb, holdings in (("holds", begun), ("no longer holds", ended)):
            for (name, node), parts in holdings.items():
                key = holder_names.pod_key(name)
                text = f"{verb} {_described(parts)} on node {node}"
                yield Change("Pod", key, text, namespace=key.partition("/")[0])

    def _holders(self, row: Any) -> dict[tuple[str, str], str]:
        """The share of each holder, by name and node."""
        if row is None:
            return {}
        shares = {number: hold_lines.share_text(row[MODE], amount) for number, amount in row[HOLDERS]}
        shares |= {slot[4]: f"MIG {slot[1]}" for slot in row[SLOTS] if slot[4]}
        named = {(self._tables.holder(number), row[NODE]): share for number, share in shares.items()}
        return {key: share for key, share in named.items() if key[0]}


def _described(parts: list[tuple[str, str]]) -> str:
    if len(parts) > 1:
        return f"{len(parts)} cards"
    card, share = parts[0]
    return f"card {card}" if share == "whole" else f"{share} of card {card}"


def _card(name: str, old: Any, new: Any) -> Iterator[Change]:
    if old is None:
        yield Change("GPUDevice", name, f"appeared on node {new[NODE]}")
        return
    if new is None:
        yield Change("GPUDevice", name, f"is no longer known on node {old[NODE]}")
        return
    if new[POOL] != old[POOL]:
        text = f"joined pool {new[POOL]}" if new[POOL] else f"left pool {old[POOL]}"
        yield Change("GPUDevice", name, text)
    elif new[STATE] != old[STATE] and new[STATE] in _STATES:
        yield Change("GPUDevice", name, f"is {_STATES[new[STATE]]}{_because(new)}")
    changed = new[FLAGS] ^ old[FLAGS]
    if (new[FLAGS] | old[FLAGS]) & (rows.DRAINED | rows.RETIRED | rows.REPARTITIONING):
        changed &= ~rows.UNHEALTHY  # the ledger takes such a card out by marking it unhealthy
    for flag, (begins, ends) in _FLAG_TEXTS.items():
        if changed & flag:
            text = f"{begins}{_because(new)}" if new[FLAGS] & flag else ends
            yield Change("GPUDevice", name, text)


def _because(card: Any) -> str:
    return f": {card[REASON]}" if card[REASON] else ""


def _node(name: str, old: Any, new: Any) -> Iterator[Change]:
    if old is None or new is None:
        yield Change("Node", name, "reports cards" if old is None else "has no cards any more")
        return
    texts = {
        "silent": ("its agent is silent", "its agent reports again"),
        "cordoned": ("was cordoned", "was uncordoned"),
    }
    for field, (begins, ends) in texts.items():
        if old[field] != new[field]:
            yield Change("Node", name, begins if new[field] else ends)


def _pool(name: str, old: Any, new: Any) -> Iterator[Change]:
    if old is None or new is None:
        yield Change("GPUPool", name, "was created" if old is None else "was deleted")
        return
    before = {condition["type"]: condition["status"] for condition in old["conditions"]}
    for condition in new["conditions"]:
        if before.get(condition["type"]) != condition["status"]:
            why = condition["message"] or condition["reason"]
            yield Change("GPUPool", name, f"{condition['type']} is {condition['status']}: {why}")
    if new["applied"] != old["applied"] and new["applied"]:
        yield Change("GPUPool", name, f"shares its cards as {new['applied']}")


def _waiting(key: str, old: Any, new: Any) -> Iterator[Change]:
    if old is None and new is not None:
        asks = " and ".join(new["asks"])
        yield Change("Pod", key, f"waits for {asks}" if asks else "waits", namespace=key.partition("/")[0])


def _reservation(key: str, old: Any, new: Any) -> Iterator[Change]:
    namespace = key.partition("/")[0]
    if new is None:
        yield Change("Reservation", key, "was deleted", namespace)
    elif old is None or old["state"] != new["state"]:
        why = f": {new['message']}" if new["message"] else ""
        yield Change("Reservation", key, f"is {new['state']}{why}", namespace)


_TOLD: Final = {
    "cards": _card,
    "nodes": _node,
    "pools": _pool,
    "waiting": _waiting,
    "reservations": _reservation,
}
