"""What admission costs those who create pods, over TLS as the API server asks: one by one, many, in a burst.

Beside it the same decision by a webhook that lists the nodes for every pod. What matters is that ours grows
neither with the nodes nor with the pods, and that of a burst through the real API server nobody is passed by.
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
PLAIN = "pods that name none of our resources"
PLAIN_SHARE = 5
"""For so many pods that come to us, one that does not."""
AT_ONCE = 16
WARM = 5
"""Questions that are asked first and not counted."""


@dataclass(frozen=True, slots=True)
class Sizes:
    nodes: Sequence[int]
    questions: int
    listed: int
    """Questions to the one that lists: each may take a second."""
    flood: int
    burst: int


FULL = Sizes((10, 1_000, 5_000), 500, 20, 4_000, 10_000)
QUICK = Sizes((3, 6), 20, 3, 40, 60)


@dataclass(frozen=True, slots=True)
class Asked:
    """Seconds that each question took, one after another."""

    taken: Sequence[float]

    @property
    def half(self) -> float:
        return median(self.taken) * 1000

    @property
    def most(self) -> float:
        """99 of 100 take less, in milliseconds."""
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
        Figure("admission", f"{what}: half take less than", "ms", {OURS: alone.half, LISTING: theirs.half}),
        Figure(
            "admission", f"{what}: 99 of 100 take less than", "ms", {OURS: alone.most, LISTING: theirs.most}
        ),
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
    """Pods that came through without our mark: nobody asked us, or nobody waited for the answer."""

    @property
    def rate(self) -> float:
        return len(self.created.taken) / self.seconds


async def burst(house: Gatehouse, count: int) -> list[Figure]:
    """So many real pods through the real API server, and beside them some that do not concern us."""
    plain = await created(house, count // PLAIN_SHARE, "plain", resource="memory")
    ours = await created(house, count, "burst")
    await house.knows("pods as they come", count + count // PLAIN_SHARE)
    what = f"burst of {count:,} pods, {world.AT_ONCE} at once"
    rates = {OURS: ours.rate, PLAIN: plain.rate}
    longest = {OURS: ours.created.most, PLAIN: plain.created.most}
    return [
        Figure("admission", f"{what}: created by the API server", "/s", rates),
        Figure("admission", f"{what}: 99 of 100 take less than", "ms", longest),
        Figure("admission", f"{what}: passed by", "", {OURS: ours.passed_by}),
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
