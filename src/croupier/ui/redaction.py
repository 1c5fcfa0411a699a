"""Cuts rows to what a viewer may see: nothing that kubectl would refuse, plus amounts, never names.

Rows are cut before anything is derived from them, so a count or an explanation cannot tell more than the
list. docs/ui-api.md describes the tables; redacted_snapshot.py cuts the snapshots that questions are answered
from.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from croupier.ui.redacted_snapshot import snapshot
from croupier.ui.rights import Rights
from croupier.ui.tables import ASSIGNED, HOLDERS, LEDGER_POOL, NODE, OFFERS, POOL, REASON, SLOTS

__all__ = ["Names", "delta", "row", "snapshot", "tables"]

Rows = Mapping[str, Mapping[str, Any]]
"""Rows by table and key; None for a row that is gone."""

UNREADABLE: Final = "the page cannot read this kind; an administrator of the page sees the reason"


class Names(Protocol):
    """The published rows, which other rows refer to."""

    def holder(self, number: int) -> str:
        """The holder as in the ledger; empty if the number is unknown."""
        ...

    def row(self, table: str, key: str) -> Any | None: ...

    def rows(self, part: str) -> Mapping[str, Mapping[str, Any]]: ...


def row(table: str, key: str, value: Any, rights: Rights, names: Names) -> Any | None:
    """The row as the viewer gets it; None if the viewer does not get it. Unknown tables are hidden."""
    if rights.everything or value is None:
        return value
    cut = _CUTS.get(table)
    return None if cut is None else cut(key, value, rights, names)


def tables(whole: Rows, rights: Rights, names: Names) -> Rows:
    """The rows of a snapshot that the viewer gets."""
    if rights.everything:
        return whole
    cut = {
        table: _visible(table, rows, rights, names)
        for table, rows in whole.items()
        if table != "nodes" or rights.all_cards
    }
    if "nodes" in whole and not rights.all_cards:
        cards = names.rows("cards")["cards"].values()
        named = {card[NODE] for card in map(_plain, cards) if _is_visible(card, rights, names)}
        cut["nodes"] = {name: node for name, node in whole["nodes"].items() if name in named}
    return cut


def delta(changed: Rows, before: Rows, rights: Rights, names: Names) -> Rows:
    """The changes that the viewer gets; `before` has the previous values of the same rows.

    A row that becomes hidden is sent as deleted, but only if it was visible: its key may be a name.
    """
    if rights.everything:
        return changed
    cut: dict[str, dict[str, Any]] = {}
    for table, rows in changed.items():
        seen = _visible(table, rows, rights, names)
        old = before.get(table, {})
        hidden = {key: old[key] for key in rows if key not in seen and old.get(key) is not None}
        gone: dict[str, Any] = dict.fromkeys(_visible(table, hidden, rights, names))
        if seen or gone:
            cut[table] = {**seen, **gone}
    if not rights.all_cards and "cards" in cut:
        cut["nodes"] = cut.get("nodes", {}) | _nodes_of(cut["cards"], before.get("cards", {}), rights, names)
    return cut


def _nodes_of(cards: Mapping[str, Any], before: Mapping[str, Any], rights: Rights, names: Names) -> Any:
    """A node becomes visible with its first visible card, and hidden with its last."""
    named = {
        _plain(card)[NODE]
        for key, value in cards.items()
        if (card := value if value is not None else before.get(key)) is not None
    }
    return {name: row("nodes", name, names.row("nodes", name), rights, names) for name in named}


def _visible(table: str, rows: Mapping[str, Any], rights: Rights, names: Names) -> dict[str, Any]:
    cut = ((key, row(table, key, value, rights, names)) for key, value in rows.items())
    return {key: value for key, value in cut if value is not None}


def _plain(value: Any) -> Any:
    """Lists and dicts, also of a row that is a Struct."""
    return value if isinstance(value, list | tuple | dict) else msgspec.to_builtins(value)


def _cluster(_key: str, value: Any, _rights: Rights, _names: Names) -> Any:
    cluster = dict(_plain(value))
    return {**cluster, "unreadable": dict.fromkeys(cluster.get("unreadable") or (), UNREADABLE)}


def _node(key: str, value: Any, rights: Rights, names: Names) -> Any | None:
    if rights.all_cards:
        return value
    cards = (card for card in map(_plain, names.rows("cards")["cards"].values()) if card[NODE] == key)
    return value if any(_is_visible(card, rights, names) for card in cards) else None


def _card(_key: str, value: Any, rights: Rights, names: Names) -> Any | None:
    """Holders stay as numbers with shares; their names are in `holders`."""
    if rights.all_cards:
        return value
    card = list(_plain(value))
    if not _is_visible(card, rights, names):
        return None
    card[REASON] = ""
    for index in (ASSIGNED, LEDGER_POOL):
        card[index] = card[index] if card[index] and rights.sees_pool(card[index]) else ""
    card[OFFERS] = [pool for pool in card[OFFERS] or () if rights.sees_pool(pool)]
    return card


def _is_visible(card: Any, rights: Rights, names: Names) -> bool:
    """The card is in a visible pool, or a pod of a visible namespace holds a part of it."""
    if card[POOL] and rights.sees_pool(card[POOL]):
        return True
    numbers = [holder[0] for holder in card[HOLDERS] or ()]
    numbers += [slot[4] for slot in card[SLOTS] or () if slot[4]]
    return any(_sees_pod(names.holder(number), rights) for number in numbers)


def _sees_pod(key: str, rights: Rights) -> bool:
    """`key` starts with `namespace/`."""
    namespace, slash, _ = key.partition("/")
    return bool(slash) and rights.sees_namespace(namespace)


def _pool(key: str, value: Any, rights: Rights, _names: Names) -> Any | None:
    """Messages of conditions and of candidates name holders and cards: only for readers of GPUPools."""
    if rights.whole_pools:
        return value
    if not rights.sees_pool(key):
        return None
    pool = dict(_plain(value))
    pool["conditions"] = [{**condition, "message": ""} for condition in pool.get("conditions") or ()]
    return {**pool, **{field: _amount(pool.get(field)) for field in ("cards", "nodes", "candidates")}}


def _amount(listed: Any) -> Any:
    """The number of the listed objects instead of their names."""
    return len(listed) if isinstance(listed, list | tuple | dict) else listed


def _holder(_key: str, value: Any, rights: Rights, _names: Names) -> Any | None:
    return value if _sees_pod(_plain(value)[0], rights) else None


def _namespaced(key: str, value: Any, rights: Rights, _names: Names) -> Any | None:
    return value if _sees_pod(key, rights) else None


def _market(_key: str, value: Any, rights: Rights, _names: Names) -> Any | None:
    return value if rights.all_cards else None


def _change(_key: str, value: Any, rights: Rights, _names: Names) -> Any | None:
    change = _plain(value)
    if namespace := change.get("namespace"):
        return value if rights.sees_namespace(namespace) else None
    if "pool" in str(change.get("kind", "")).lower():  # its text may repeat the message of a condition
        return value if rights.whole_pools else None
    return value if rights.all_cards else None


_CUTS: Final[Mapping[str, Callable[[str, Any, Rights, Names], Any | None]]] = {
    "cluster": _cluster,
    "nodes": _node,
    "cards": _card,
    "pools": _pool,
    "holders": _holder,
    "waiting": _namespaced,
    "reservations": _namespaced,
    "market": _market,
    "changes": _change,
}
"""Tables that are not listed, such as `findings`, are for viewers who see everything."""
