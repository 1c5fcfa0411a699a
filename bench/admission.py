"""Latency of the admission webhook over TLS: sequential, concurrent, and in a burst.

Compared with a webhook that lists the nodes for every pod. The latency of Croupier must not grow with the
number of nodes or pods, and no pod of a burst may bypass the webhook.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from bench import filled_cluster, subject_process, webhook_cluster
from bench.env import BenchEnv
from bench.figures import OURS, Figure
from bench.webhook_cluster import NAMESPACE, REQUESTED, WebhookCluster, WebhookEndpoint

LISTING_WEBHOOK = "listing the nodes"
UNRELATED_PODS = "pods without our resources"
UNRELATED_RATIO = 5
"""Number of pods with our resources per pod without."""
CONCURRENCY = 16
WARM_UP = 5
"""Warm-up requests that are not counted."""


@dataclass(frozen=True, slots=True)
class AdmissionSizes:
    nodes: Sequence[int]
    questions: int
    listed: int
    """Requests to the webhook that lists nodes: each may take a second."""
    flood: int
    burst: int


FULL = AdmissionSizes((10, 1_000, 5_000), 500, 20, 4_000, 10_000)
QUICK = AdmissionSizes((3, 6), 20, 3, 40, 60)


@dataclass(frozen=True, slots=True)
class Latencies:
    """Seconds per request."""

    taken: Sequence[float]

    @property
    def half(self) -> float:
        return median(self.taken) * 1000

    @property
    def most(self) -> float:
        """99th percentile in milliseconds."""
        return quantiles(self.taken, n=100, method="inclusive")[98] * 1000


async def cost(on: BenchEnv) -> list[Figure]:
    sizes = QUICK if on.quick else FULL
    found: list[Figure] = []
    async with (
        webhook_cluster.raised(on) as house,
        subject_process.started("listing_admission", house.lab.kubeconfig) as listing,
    ):
        said = await listing.hear()
        naive = webhook_cluster.webhook_endpoint(f"{said['url']}/mutate", said["authority"])
        for nodes in sizes.nodes:
            await house.grow(nodes)
            found += await compared(f"{nodes:,} nodes", house, naive, sizes)
        found += await burst(house, sizes.burst)
        found += await compared(f"{nodes:,} nodes, {sizes.burst:,} pods", house, naive, sizes)
    return found


async def compared(
    what: str, house: WebhookCluster, naive: WebhookEndpoint, sizes: AdmissionSizes
) -> list[Figure]:
    ours = await house.door()
    alone = await one_by_one(ours, sizes.questions)
    theirs = await one_by_one(naive, sizes.listed)
    worked, began = house.cpu, time.perf_counter()
    await webhook_cluster.send_reviews(ours, questions(sizes.flood), at_once=CONCURRENCY)
    seconds, worked = time.perf_counter() - began, house.cpu - worked
    return [
        Figure("admission", f"{what}: median", "ms", {OURS: alone.half, LISTING_WEBHOOK: theirs.half}),
        Figure(
            "admission", f"{what}: 99th percentile", "ms", {OURS: alone.most, LISTING_WEBHOOK: theirs.most}
        ),
        Figure("admission", f"{what}: answers, {CONCURRENCY} at once", "/s", {OURS: sizes.flood / seconds}),
        Figure("admission", f"{what}: CPU of the webhook", "ms", {OURS: worked / sizes.flood * 1000}),
    ]


async def one_by_one(there: WebhookEndpoint, count: int) -> Latencies:
    taken = await webhook_cluster.send_reviews(there, questions(WARM_UP + count), at_once=1)
    return Latencies(taken[WARM_UP:])


def questions(count: int) -> list[bytes]:
    return [webhook_cluster.review(number) for number in range(count)]


@dataclass(frozen=True, slots=True)
class BurstResult:
    created: Latencies
    seconds: float
    passed_by: int
    """Pods created without the mark: the webhook was not called, or its answer was ignored."""

    @property
    def rate(self) -> float:
        return len(self.created.taken) / self.seconds


async def burst(house: WebhookCluster, count: int) -> list[Figure]:
    """Create `count` pods through the API server, and some pods without our resources for comparison."""
    plain = await created(house, count // UNRELATED_RATIO, "plain", resource="memory")
    ours = await created(house, count, "burst")
    await house.knows("created pods", count + count // UNRELATED_RATIO)
    what = f"burst of {count:,} pods, {filled_cluster.CONCURRENCY} at once"
    rates = {OURS: ours.rate, UNRELATED_PODS: plain.rate}
    longest = {OURS: ours.created.most, UNRELATED_PODS: plain.created.most}
    return [
        Figure("admission", f"{what}: created by the API server", "/s", rates),
        Figure("admission", f"{what}: 99th percentile", "ms", longest),
        Figure("admission", f"{what}: bypassed", "", {OURS: ours.passed_by}),
    ]


async def created(house: WebhookCluster, count: int, name: str, resource: str = REQUESTED) -> BurstResult:
    taken: list[float] = []
    marks = 0

    async def one(number: int) -> None:
        nonlocal marks
        began = time.perf_counter()
        body = webhook_cluster.pod(f"{name}-{number}", resource)
        made = await house.api.create(filled_cluster.PODS, body, namespace=NAMESPACE)
        taken.append(time.perf_counter() - began)
        marks += webhook_cluster.is_marked(made)

    began = time.perf_counter()
    await filled_cluster.in_parallel(one, range(count))
    return BurstResult(Latencies(taken), time.perf_counter() - began, count - marks)
