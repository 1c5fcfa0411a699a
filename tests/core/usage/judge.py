"""Recounts usage from a list of ledger revisions, without the code under test.

A revision of a node is valid until the next one. For each hour it adds the shares of the holders,
multiplied by the seconds of the hour in which the revision was valid.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from croupier.core.usage.holdings import UsageKey


@dataclass(frozen=True)
class Revision:
    """The holders of a node from `at` on: pod and key to share."""

    node: str
    at: int
    held: Mapping[tuple[str, UsageKey], Fraction]


def recount(revisions: Iterable[Revision], until: int) -> dict[tuple[int, UsageKey], Fraction]:
    """The card-seconds of each hour and key up to `until`; revisions are in the order of their writes."""
    chains: dict[str, list[Revision]] = {}
    for revision in revisions:
        chains.setdefault(revision.node, []).append(revision)
    amounts: dict[tuple[int, UsageKey], Fraction] = {}
    for chain in chains.values():
        ends = [revision.at for revision in chain[1:]] + [until]
        for revision, end in zip(chain, ends, strict=True):
            for hour in range(revision.at // 3600, until // 3600 + 1):
                valid = min(end, until, hour * 3600 + 3600) - max(revision.at, hour * 3600)
                for (_, key), share in revision.held.items():
                    amounts[hour, key] = amounts.get((hour, key), Fraction()) + share * max(0, valid)
    return {place: amount for place, amount in amounts.items() if amount}


def holders(revisions: Iterable[Revision], first_hour: int, until: int) -> Counter[UsageKey]:
    """How often a pod began to hold from `first_hour` on, or held when it began."""
    counted: Counter[UsageKey] = Counter()
    held: dict[tuple[str, str, UsageKey], int] = {}
    for revision in revisions:
        now = {(revision.node, pod, key) for pod, key in revision.held}
        for place in [place for place in held if place[0] == revision.node and place not in now]:
            if held.pop(place) < first_hour * 3600 <= revision.at:
                counted[place[2]] += 1
        for place in now - held.keys():
            held[place] = revision.at
            if first_hour * 3600 <= revision.at < until:
                counted[place[2]] += 1
    for place, since in held.items():
        if since < first_hour * 3600 <= until:
            counted[place[2]] += 1
    return counted
