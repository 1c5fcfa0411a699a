"""Counts how long shares of cards were held: whole seconds, exact, by key and hour.

The account holds two things: what is held on each node now, and what was used in each hour. Everything that
is held is counted up to one common time, `until`. A change at another time is counted as the difference: a
share that ended before `until` gives back the time that was counted too much. So the delay of a change does
not matter.

After a list it may be unknown when a share began or ended. The generation of a ledger grows by one with
each write, so one missed write is exact. If more were missed, shares that ended count until the last
record, and shares that began count from the last write.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from croupier.core.usage.holdings import Holdings, UsageKey

HOUR: Final = 3600
DAY: Final = 24
"""Hours of a day."""
LATEST: Final = HOUR
"""Seconds by which a change may be late. A change that is later is counted as if it was this late."""


@dataclass(slots=True)
class HourUsage:
    """The usage of one key in one hour."""

    card_seconds: Fraction = field(default_factory=Fraction)
    """Seconds of a whole card: a quarter of a card for 4 seconds is 1."""
    began: int = 0
    """Pods that began to hold within the hour."""
    carried: int = 0
    """Pods that held when the hour began."""


@dataclass(slots=True)
class KeyTotal:
    """The usage of one key since it was first seen."""

    card_seconds: Fraction = field(default_factory=Fraction)
    last_hour: int = 0
    """The last hour in which it was used."""


@dataclass(frozen=True, slots=True)
class NodeHoldings:
    """What is held on a node, in one generation of its ledger."""

    generation: int
    """The generation of the NodeReservation. 0 if the ledger is in memory."""
    holdings: Holdings


NO_HOLDINGS: Final = NodeHoldings(0, {})


@dataclass(slots=True)
class UsageAccount:
    """Hours are counted since 1970, times are seconds since 1970."""

    since: int
    """When counting began."""
    until: int
    version: str = ""
    """The resourceVersion up to which changes of ledgers are counted. Empty: list them first."""
    nodes: dict[str, NodeHoldings] = field(default_factory=dict)
    hours: dict[int, dict[UsageKey, HourUsage]] = field(default_factory=dict)
    totals: dict[UsageKey, KeyTotal] = field(default_factory=dict)
    changed: bool = field(default=False, compare=False)
    """Something was counted since this was last set to False."""

    @property
    def is_idle(self) -> bool:
        """Nothing is held."""
        return not any(node.holdings for node in self.nodes.values())

    def observe(self, node: str, state: NodeHoldings, at: int) -> None:
        """The ledger of `node` changed to `state` with one write, at `at`."""
        self._change(node, state, began=at, ended=at)

    def remove(self, node: str, at: int) -> None:
        """The ledger of `node` was deleted at `at`."""
        self.observe(node, NO_HOLDINGS, at)
        del self.nodes[node]

    def relist(self, listed: Mapping[str, tuple[NodeHoldings, int]]) -> None:
        """These are all ledgers, each with the time of its last write; writes may have been missed."""
        recorded = self.until
        for node in self.nodes.keys() - listed.keys():
            self.remove(node, recorded)
        for node, (state, at) in listed.items():
            before = self.nodes.get(node, NO_HOLDINGS).generation
            exact = 0 < before <= state.generation <= before + 1
            self._change(node, state, began=at, ended=at if exact else recorded)

    def _change(self, node: str, state: NodeHoldings, *, began: int, ended: int) -> None:
        earliest = max(self.since, self.until - LATEST)
        began, ended = max(began, earliest), max(ended, earliest)
        if began > self.until:
            self.advance(began)
        old, self.nodes[node] = self.nodes.get(node, NO_HOLDINGS), state
        for key, was, share in _changed(old.holdings, state.holdings):
            moment = began if share > was else ended
            self._count(key, share - was, _pods(was, share), start=moment, end=self.until)
            if not was:
                self._hour(moment, key).began += 1

    def advance(self, until: int) -> None:
        """Count everything that is held up to `until`."""
        for node in self.nodes.values():
            for key, pods in node.holdings.items():
                self._count(key, sum(pods.values()), len(pods), start=self.until, end=until)
        self.until = until

    def forget_before(self, hour: int) -> None:
        """Drop hours before `hour`, and the totals of keys that were last used before it."""
        self.hours = {h: usage for h, usage in self.hours.items() if h >= hour}
        held = {key for node in self.nodes.values() for key in node.holdings}
        self.totals = {
            key: total for key, total in self.totals.items() if key in held or total.last_hour >= hour
        }

    def finished_days(self) -> list[int]:
        """Days with usage that cannot change any more."""
        today = day_of(hour_of(self.until - LATEST))
        return sorted({day_of(hour) for hour in self.hours if day_of(hour) < today})

    def _count(self, key: UsageKey, share: Fraction | int, pods: int, *, start: int, end: int) -> None:
        """Add `share` of a card and `pods` from `start` to `end`; subtract them if `end` is earlier."""
        self.changed = True
        sign, first, last = (1, start, end) if end >= start else (-1, end, start)
        for hour, seconds in _by_hour(first, last):
            self._hour(hour * HOUR, key).card_seconds += sign * share * seconds
            if hour * HOUR > first:
                self._hour(hour * HOUR, key).carried += sign * pods
        total = self.totals.setdefault(key, KeyTotal())
        total.card_seconds += share * (end - start)
        total.last_hour = max(total.last_hour, hour_of(last))

    def _hour(self, moment: int, key: UsageKey) -> HourUsage:
        return self.hours.setdefault(hour_of(moment), {}).setdefault(key, HourUsage())


def hour_of(moment: int) -> int:
    return moment // HOUR


def day_of(hour: int) -> int:
    return hour // DAY


def _by_hour(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Each hour with a part of the time from `first` to `last`, and the seconds of that part.

    An hour that begins exactly at `last` is included with 0 seconds, so that parts of a span add up.
    """
    for hour in range(hour_of(first), hour_of(last) + 1):
        yield hour, min(last, (hour + 1) * HOUR) - max(first, hour * HOUR)


def _changed(old: Holdings, new: Holdings) -> Iterator[tuple[UsageKey, Fraction, Fraction]]:
    """The key and the old and new share of each pod whose share changed."""
    nothing = Fraction()
    empty: Mapping[str, Fraction] = {}
    for key in old.keys() | new.keys():
        before, after = old.get(key, empty), new.get(key, empty)
        for pod in before.keys() | after.keys():
            was, share = before.get(pod, nothing), after.get(pod, nothing)
            if was != share:
                yield key, was, share


def _pods(was: Fraction, share: Fraction) -> int:
    """How the number of holding pods changes."""
    return bool(share) - bool(was)
