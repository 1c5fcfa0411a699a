"""Every bench there is, in the order they run. A new one is a function and a line here."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from bench import reconcile, sync
from bench.figures import Figure
from bench.world import World

Bench = Callable[[World], Awaitable[Sequence[Figure]]]

BENCHES: Final[Mapping[str, Bench]] = {
    "store": sync.absorption,
    "burst": sync.burst,
    "sync": sync.first_sync,
    "reconcile": reconcile.loop,
}
