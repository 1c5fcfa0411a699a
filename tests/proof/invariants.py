"""Checks the invariants of the history of a ledger, from the raw objects alone.

It shares no code with the ledger and is deliberately simple: every revision is summed up from the raw
object, then compared with the previous one. A checker that used the functions of the ledger would share
their bugs.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.proof.facts import CardsChanged, Fact, Grant, HolderAdded, HolderBound, HolderRemoved, PodBound

Raw = dict[str, Any]
MAX_HOLDERS = 64
"""A card with this many holders takes no others, and so has nothing free."""


@dataclass(frozen=True)
class LedgerRevision:
    """One revision of one NodeReservation."""

    node: str
    version: int
    generation: int
    uid: str
    cards: Mapping[str, Raw]
    grants: Mapping[str, Grant]
    held: frozenset[str]
    reservations: frozenset[str]
    card_count: int
    summary: Raw | None = None
    """None if another program wrote the ledger without one, and in memory."""


def read(raw: Raw) -> LedgerRevision:
    spec, meta = raw["spec"], raw["metadata"]
    grants: dict[str, set[tuple[str, int, str]]] = {}
    for card in spec["cards"]:
        for holder, share in (card.get("holders") or {}).items():
            grants.setdefault(holder, set()).add((card["id"], share, ""))
        for slot in card.get("slots") or []:
            if slot.get("holder"):
                grants.setdefault(slot["holder"], set()).add((card["id"], 0, slot["id"]))
    return LedgerRevision(
        node=meta["name"],
        version=int(meta["resourceVersion"]),
        generation=meta["generation"],
        uid=meta["uid"],
        cards={card["id"]: card for card in spec["cards"]},
        grants={holder: frozenset(parts) for holder, parts in grants.items()},
        held=frozenset(spec.get("held") or ()),
        reservations=frozenset(spec.get("reservations") or ()),
        card_count=len(spec["cards"]),
        summary={"free": {}, **spec["summary"]} if "summary" in spec else None,
    )


def revision_faults(sheet: LedgerRevision) -> Iterator[str]:
    """Violated invariants of one revision (I1, I2)."""
    if sheet.card_count != len(sheet.cards):
        yield "two cards have the same id"
    for name, card in sheet.cards.items():
        yield from _card(name, card)
    for holder in sorted(sheet.held - sheet.grants.keys()):
        yield f"{holder} is held but holds no card"
    for holder in sorted(sheet.reservations - sheet.grants.keys()):
        yield f"{holder} comes from a Reservation but holds no card"
    yield from _namesakes(sheet.grants)
    if sheet.summary not in (None, amounts := counted(sheet)):
        yield f"the summary is {sheet.summary}, and the cards amount to {amounts}"


def counted(sheet: LedgerRevision) -> Raw:
    """The summary of the cards and holders, by counting them."""
    free: dict[str, int] = {}
    slots: dict[str, int] = {}
    for card in sheet.cards.values():
        if not card.get("healthy", True):
            continue
        holders: Mapping[str, int] = card.get("holders") or {}
        left = _most(card) - sum(holders.values()) if len(holders) < MAX_HOLDERS else 0
        if card["mode"] in ("Percent", "Exclusive"):
            free["cards"] = free.get("cards", 0) + (not holders)
        if card["mode"] in ("Percent", "TimeSlice"):
            unit = "percent" if card["mode"] == "Percent" else "slices"
            free[unit] = free.get(unit, 0) + left
        for slot in card.get("slots") or []:
            if not slot.get("holder"):
                slots[slot["profile"]] = slots.get(slot["profile"], 0) + 1
    by_profile = {"slots": slots} if slots else {}
    in_use = [card for card in sheet.cards.values() if card.get("withheld", {}).get("state") != "Retired"]
    return {"cards": len(in_use), "holders": len(sheet.grants), "free": {**free, **by_profile}}


def _card(name: str, card: Raw) -> Iterator[str]:
    holders: Mapping[str, int] = card.get("holders") or {}
    given, most = sum(holders.values()), _most(card)
    if given > most:
        yield f"card {name} has {given} of {most} allocated"
    if any(share < 1 for share in holders.values()):
        yield f"card {name} has a holder with an empty share"
    if card["mode"] == "Exclusive" and (len(holders) > 1 or given not in (0, 100)):
        yield f"card {name} is exclusive and has {len(holders)} holders of {given} %"
    yield from _slots(name, card.get("slots") or [])


def _most(card: Raw) -> int:
    """The maximum sum of the shares of a card."""
    by_mode = {"Percent": card.get("capacityPercent"), "TimeSlice": card.get("slices"), "Exclusive": 100}
    return by_mode.get(card["mode"]) or 0


def _slots(name: str, slots: list[Raw]) -> Iterator[str]:
    if len({slot["id"] for slot in slots}) != len(slots):
        yield f"card {name} has a slot twice"
    spans = sorted((slot["start"], slot["start"] + slot["size"], slot["id"]) for slot in slots)
    for (_, end, slot), (start, _, other) in pairwise(spans):
        if start < end:
            yield f"slots {slot} and {other} of card {name} overlap"


def _namesakes(grants: Mapping[str, Grant]) -> Iterator[str]:
    seen: dict[str, str] = {}
    for holder in sorted(grants):
        uid = uid_of(holder)
        if uid and seen.setdefault(uid, holder) != holder:
            yield f"{seen[uid]} and {holder} have the same UID"


def uid_of(holder: str) -> str:
    parts = holder.split("/")
    return parts[2] if len(parts) == 3 else ""


def transition_faults(old: LedgerRevision, new: LedgerRevision) -> Iterator[str]:
    """Violated invariants of the transition from one revision to the next (I2, I3)."""
    if new.generation not in (old.generation, old.generation + 1):
        yield f"GAP: generation {old.generation} is followed by {new.generation}"
    for holder in sorted(old.grants.keys() & new.grants.keys()):
        if old.grants[holder] != new.grants[holder]:
            yield f"{holder} had {_describe(old.grants[holder])}, now {_describe(new.grants[holder])}"
        if holder in new.held and holder not in old.held:
            yield f"{holder} was bound, now only held"
    for before, after in renamed(old, new):
        if old.grants[before] != new.grants[after]:
            had, has = _describe(old.grants[before]), _describe(new.grants[after])
            yield f"{before} became {after} and {had} became {has}"
    for name in sorted(old.cards.keys() & new.cards.keys()):
        yield from _epochs(name, old.cards[name], new.cards[name])
    for name in sorted(old.cards.keys() - new.cards.keys()):
        if any(card == name for grant in old.grants.values() for card, _, _ in grant):
            yield f"card {name} was removed while it had holders"


def renamed(old: LedgerRevision, new: LedgerRevision) -> list[tuple[str, str]]:
    """`ns/pod` that was removed in the revision that added `ns/pod/uid`."""
    went, came = old.grants.keys() - new.grants.keys(), new.grants.keys() - old.grants.keys()
    return [
        (old_, new_) for old_ in went for new_ in came if not uid_of(old_) and new_.startswith(f"{old_}/")
    ]


def _epochs(name: str, old: Raw, new: Raw) -> Iterator[str]:
    def shape(card: Raw) -> tuple[object, ...]:
        return card["mode"], card.get("healthy", True)

    if new["epoch"] < old["epoch"]:
        yield f"the epoch of card {name} went back"
    if shape(old) != shape(new) and new["epoch"] == old["epoch"]:
        yield f"card {name} changed mode or health without a new epoch"


def _describe(grant: Grant) -> str:
    return ", ".join(f"{slot or share} of {card}" for card, share, slot in sorted(grant))


@dataclass
class InvariantChecker:
    """Receives every revision in order and records violated invariants and facts."""

    faults: list[str] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    sheets: dict[str, LedgerRevision] = field(default_factory=dict)
    """The newest revision of each ledger that exists."""
    revisions: int = 0
    pods: dict[str, str] = field(default_factory=dict)
    """The node of every bound pod that has not ended, by UID."""

    def ledger(self, change: str, raw: Raw) -> None:
        new = read(raw)
        self.revisions += 1
        old = self.sheets.pop(new.node, None)
        if change == "DELETED":
            self._blame(new, (f"deleted while {holder} held it" for holder in sorted(new.grants)))
            self._ended(new, old.grants if old else (), {})
            return
        self._blame(new, revision_faults(new))
        if old is not None and old.uid == new.uid:
            self._blame(new, transition_faults(old, new))
        elif new.generation != 1:
            self.faults.append(f"{new.node}: GAP: first seen in generation {new.generation}")
        self._note(old, new)
        self.sheets[new.node] = new

    def _blame(self, sheet: LedgerRevision, faults: Iterator[str]) -> None:
        self.faults += [f"{sheet.node} at {sheet.version}: {fault}" for fault in faults]

    def _note(self, old: LedgerRevision | None, new: LedgerRevision) -> None:
        before = old.grants if old is not None else {}
        capacities = {name: _most(card) for name, card in new.cards.items()}
        if old is None or capacities != {name: _most(card) for name, card in old.cards.items()}:
            self.facts.append(CardsChanged(new.version, new.node, capacities))
        follows = dict(renamed(old, new)) if old is not None else {}
        self._ended(
            new, {holder: grant for holder, grant in before.items() if holder not in new.grants}, follows
        )
        for holder, grant in new.grants.items():
            if holder not in before:
                self.facts.append(HolderAdded(new.version, new.node, holder, grant, holder not in new.held))
            elif old is not None and holder in old.held and holder not in new.held:
                self.facts.append(HolderBound(new.version, new.node, holder))

    def _ended(self, sheet: LedgerRevision, gone: Collection[str], follows: Mapping[str, str]) -> None:
        for holder in sorted(gone):
            self.facts.append(HolderRemoved(sheet.version, sheet.node, holder, follows.get(holder, "")))

    def pod(self, change: str, raw: Raw) -> None:
        meta, node = raw["metadata"], raw["spec"].get("nodeName", "")
        uid, version = meta["uid"], int(meta["resourceVersion"])
        over = change == "DELETED" or raw.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if over:
            if self.pods.pop(uid, ""):
                self.facts.append(
                    HolderRemoved(version, "", f"{meta['namespace']}/{meta['name']}/{uid}", pod=True)
                )
        elif node and uid not in self.pods:
            self.pods[uid] = node
            self.facts.append(PodBound.of(version, raw))
