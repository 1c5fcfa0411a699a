"""CPU time of clearing the CPU market of a node, compared with allocating quantum by quantum.

Both use the same bids and alternate. The quantum-by-quantum variant uses a heap.
"""

import heapq
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from bench.env import BenchEnv
from bench.figures import OURS, Figure
from croupier.core.market import clearing, terms, ticking
from croupier.core.market.clearing import Bid
from croupier.core.market.cpu_supply import NodeCPU
from croupier.core.market.estimation import CPUSample
from croupier.core.market.model import MarketPod, MarketState, NodeObservation
from croupier.core.market.policy import DEFAULT
from croupier.core.market.terms import PodShape
from croupier.core.market.units import MICROS, SECOND

ONE_BY_ONE = "quantum by quantum"
PER_POD = 60
"""Quanta of supply per pod; the average demand is 75, so supply is scarce."""


@dataclass(frozen=True, slots=True)
class MarketSizes:
    pods: Sequence[int]
    rounds: int


FULL = MarketSizes((110, 1_000, 5_000), 60)
QUICK = MarketSizes((110,), 5)


async def cost(on: BenchEnv) -> list[Figure]:
    sizes = QUICK if on.quick else FULL
    found = []
    for pods in sizes.pods:
        bids, supply = random_bids(pods), PER_POD * pods
        assert [share.amount for share in clearing.clear(bids, supply).shares] == one_by_one(bids, supply)
        taken = turns(
            {OURS: partial(clearing.clear, bids, supply), ONE_BY_ONE: partial(one_by_one, bids, supply)},
            sizes.rounds if pods < 1_000 else max(3, sizes.rounds // 4),
        )
        found.append(Figure("market", f"a clearing, {pods:,} pods", "ms", taken))
    found.append(
        Figure("market", "a whole tick, 110 pods", "ms", turns({OURS: tick_function(110)}, sizes.rounds))
    )
    return found


def turns(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Milliseconds of CPU at the median."""
    taken: dict[str, list[float]] = {who: [] for who in contenders}
    for _ in range(rounds):
        for who, run in contenders.items():
            began = time.process_time_ns()
            run()
            taken[who].append((time.process_time_ns() - began) / 1e6)
    return {who: median(each) for who, each in taken.items()}


def random_bids(pods: int) -> list[Bid]:
    """Bids with random requests and weights, from a fixed seed."""
    dice = random.Random(pods)  # noqa: S311  (not a secret)
    found = []
    for number in range(pods):
        request = dice.randint(1, 50)
        found.append(
            Bid(
                f"team/pod-{number}",
                demand=dice.randint(0, 150),
                weight=1000 * request,
                floor=request,
                cap=800,
            )
        )
    return found


def one_by_one(bids: Sequence[Bid], supply: int) -> list[int]:
    """Reference implementation of the clearing."""
    amounts = [bid.floor for bid in bids]
    scale = max(bid.weight for bid in bids) ** 2 + 1
    heap = [
        ((bid.floor + 1) * scale // bid.weight, bid.name, index)
        for index, bid in enumerate(bids)
        if bid.floor < bid.want
    ]
    heapq.heapify(heap)
    for _ in range(supply - sum(amounts)):
        if not heap:
            break
        _, name, index = heap[0]
        amounts[index] += 1
        if amounts[index] < bids[index].want:
            heapq.heapreplace(heap, ((amounts[index] + 1) * scale // bids[index].weight, name, index))
        else:
            heapq.heappop(heap)
    return amounts


def tick_function(pods: int) -> Callable[[], object]:
    """A tick of a node with warm state; a third of the pods is elastic."""
    state = MarketState()
    for second in range(3):
        state = ticking.tick(state, observed(pods, second), DEFAULT, second * SECOND).state
    last = observed(pods, 3)
    return lambda: ticking.tick(state, last, DEFAULT, 3 * SECOND)


def observed(pods: int, second: int) -> NodeObservation:
    found = []
    for number, bid in enumerate(random_bids(pods)):
        sample = CPUSample(second * SECOND, second * bid.demand * MICROS, periods=10 * second)
        shape = PodShape(
            "team",
            bid.floor,
            100,
            labels={terms.MANAGED: "true"},
            annotations={terms.CLASS: "latency" if number % 3 else "elastic"},
        )
        found.append(MarketPod(bid.name, str(number), shape, 100, {"main": sample}, applied=100))
    return NodeObservation(NodeCPU(64 * 100), tuple(found))
