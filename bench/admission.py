"""Latency of the admission webhook over TLS: sequential, concurrent, and in a burst.

Compared with a webhook that lists the nodes for every pod. The latency of Croupier must not grow with the
number of nodes or pods, and no pod of a burst may bypass the webhook.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from bench import contender, gatehouse, world
from bench.figures import OURS, Figure
from bench.gatehouse import ASKED, SPACE, Door, Gatehouse
from bench.ground import Ground

LISTING = "listing the nodes"
PLAIN = "pods without our resources"
PLAIN_SHARE = 5
"""Number of pods with our resources per pod without."""
AT_ONCE = 16
WARM = 5
"""Warm-up requests that are not counted."""


@dataclass(frozen=True, slots=True)
class Sizes:
    nodes: Sequence[int]
    questions: int
    listed: int
    """Requests to the webhook that lists nodes: each may take a second."""
    flood: int
    burst: int


FULL = Sizes((10, 1_000, 5_000), 500, 20, 4_000, 10_000)
QUICK = Sizes((3, 6), 20, 3, 40, 60)


@dataclass(frozen=True, slots=True)
class Asked:
    """Seconds per request."""

    taken: Sequence[float]

    @property
    def half(self) -> float:
        return median(self.taken) * 1000

    @property
    def most(self) -> float:
        """99th percentile in milliseconds."""
        return quantiles(self.taken, n=100, method="inclusive")[98] * 1000


async def cost(on: Ground) -> list[Figure]:
    sizes = QUICK if on.quick else FULL
    found: list[Figure] = []
    async with (
        gatehouse.raised(on) as house,
        contender.started("listing_admission", house.lab.kubeconfig) as listing,
    ):
        said = await listing.hear()
        naive = gatehouse.door(f"{said['url']}/mutate", said["authority"])
        for nodes in sizes.nodes:
            await house.grow(nodes)
            found += await compared(f"{nodes:,} nodes", house, naive, sizes)
        found += await burst(house, sizes.burst)
        found += await compared(f"{nodes:,} nodes, {sizes.burst:,} pods", house, naive, sizes)
    return found


async def compared(what: str, house: Gatehouse, naive: Door, sizes: Sizes) -> list[Figure]:
    ours = await house.door()
    alone = await one_by_one(ours, sizes.questions)
    theirs = await one_by_one(naive, sizes.listed)
    worked, began = house.cpu, time.perf_counter()
    await gatehouse.asked(ours, questions(sizes.flood), at_once=AT_ONCE)
    seconds, worked = time.perf_counter() - began, house.cpu - worked
    return [
        Figure("admission", f"{what}: median", "ms", {OURS: alone.half, LISTING: theirs.half}),
        Figure("admission", f"{what}: 99th percentile", "ms", {OURS: alone.most, LISTING: theirs.most}),
        Figure("admission", f"{what}: answers, {AT_ONCE} at once", "/s", {OURS: sizes.flood / seconds}),
        Figure("admission", f"{what}: CPU of the webhook", "ms", {OURS: worked / sizes.flood * 1000}),
    ]


async def one_by_one(there: Door, count: int) -> Asked:
    taken = await gatehouse.asked(there, questions(WARM + count), at_once=1)
    return Asked(taken[WARM:])


def questions(count: int) -> list[bytes]:
    return [gatehouse.question(number) for number in range(count)]


@dataclass(frozen=True, slots=True)
class Burst:
    created: Asked
    seconds: float
    passed_by: int
    """Pods created without the mark: the webhook was not called, or its answer was ignored."""

    @property
    def rate(self) -> float:
        return len(self.created.taken) / self.seconds


async def burst(house: Gatehouse, count: int) -> list[Figure]:
    """Create `count` pods through the API server, and some pods without our resources for comparison."""
    plain = await created(house, count // PLAIN_SHARE, "plain", resource="memory")
    ours = await created(house, count, "burst")
    await house.knows("created pods", count + count // PLAIN_SHARE)
    what = f"burst of {count:,} pods, {world.AT_ONCE} at once"
    rates = {OURS: ours.rate, PLAIN: plain.rate}
    longest = {OURS: ours.created.most, PLAIN: plain.created.most}
    return [
        Figure("admission", f"{what}: created by the API server", "/s", rates),
        Figure("admission", f"{what}: 99th percentile", "ms", longest),
        Figure("admission", f"{what}: bypassed", "", {OURS: ours.passed_by}),
    ]


async def created(house: Gatehouse, count: int, name: str, resource: str = ASKED) -> Burst:
    taken: list[float] = []
    marks = 0

    async def one(number: int) -> None:
        nonlocal marks
        began = time.perf_counter()
        body = gatehouse.pod(f"{name}-{number}", resource)
        made = await house.api.create(world.PODS, body, namespace=SPACE)
        taken.append(time.perf_counter() - began)
        marks += gatehouse.is_marked(made)

    began = time.perf_counter()
    await world.in_parallel(one, range(count))
    return Burst(Asked(taken), time.perf_counter() - began, count - marks)
