"""What the nodes of a pool carry for the scheduler: a label for each pool, and the taints that pools name.

A taint is taken away again only where we put it: one that a person, or Kubernetes, put on the node stays,
even if a pool names the same. What we put is remembered on the node itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

LABEL: Final = "pool.gpu.deckhouse.io/"
"""Followed by the name of a pool; the value is empty."""


@dataclass(frozen=True, slots=True, order=True)
class Taint:
    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands on a node. `ours` are the taints that we put there, as they are written."""

    pools: frozenset[str] = frozenset()
    """Pools whose label it has."""
    taints: tuple[Taint, ...] = ()
    ours: frozenset[str] = frozenset()


def decide(now: Marks, pools: Mapping[str, Iterable[Taint]]) -> Marks:
    """The node as it shall be; `pools` are those with cards there, and the taints they name."""
    wanted = {str(one): one for taints in pools.values() for one in taints}
    theirs = tuple(one for one in now.taints if str(one) not in now.ours)
    there = {(one.key, one.effect) for one in theirs}
    added = tuple(sorted(one for one in wanted.values() if (one.key, one.effect) not in there))
    kept = _first_of_a_kind(added)
    return Marks(frozenset(pools), (*theirs, *kept), frozenset(str(one) for one in kept))


def _first_of_a_kind(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """A node has one taint of a key and effect; of two pools that differ in the value the first is taken."""
    kinds: dict[tuple[str, str], Taint] = {}
    for one in taints:
        kinds.setdefault((one.key, one.effect), one)
    return tuple(kinds.values())
