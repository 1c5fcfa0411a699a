"""Synthetic traces: services with a low load and sudden bursts, and jobs that use all CPU they get.

Bursts of a service are short and many times its usual load, and some of them hit several services at once;
jobs run for minutes, then pause. The same seed gives the same trace.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from croupier.core.market.units import SECOND
from croupier_lab.simulator.trace import TraceRow

STEP = 5
"""Seconds between two changes of a service's load."""


@dataclass(frozen=True, slots=True)
class SyntheticTraceOptions:
    pods: int
    minutes: int
    seed: int = 0
    elastic: int = 3
    """One in this many pods is a job."""


def rows(shape: SyntheticTraceOptions) -> Iterator[TraceRow]:
    """Sorted by time."""
    dice = random.Random(shape.seed)  # noqa: S311  for a simulation, not for secrets
    seconds = 60 * shape.minutes
    storms = sorted(dice.sample(range(seconds), k=max(1, shape.minutes // 12)))
    unsorted: list[TraceRow] = []
    for number in range(shape.pods):
        if number % shape.elastic == shape.elastic - 1:
            unsorted += _job(f"job-{number:03}", seconds, dice)
        else:
            unsorted += _service(f"web-{number:03}", seconds, storms, dice)
    return iter(sorted(unsorted, key=lambda row: (row.time, row.pod)))


def _service(name: str, seconds: int, storms: list[int], dice: random.Random) -> Iterator[TraceRow]:
    usual = dice.uniform(0.05, 0.4)
    phase, length = dice.uniform(0, 2 * math.pi), dice.uniform(1200, 3600)
    bursts = _bursts(seconds, storms, dice)
    for second in [*range(0, seconds, STEP), seconds - 1]:
        wave = 1 + 0.4 * math.sin(phase + 2 * math.pi * second / length)
        noise = max(0.3, dice.gauss(1, 0.15))
        cpu = usual * wave * noise * bursts.get(second // STEP, 1.0)
        yield TraceRow(second, name, "latency", int(cpu * SECOND))


def _bursts(seconds: int, storms: list[int], dice: random.Random) -> dict[int, float]:
    """The multiple of the usual load, by step."""
    moments = [(start, dice.uniform(2, 5)) for start in storms if dice.random() < 0.6]
    start = dice.expovariate(1 / 240)
    while start < seconds:
        moments.append((int(start), dice.uniform(3, 10)))
        start += dice.expovariate(1 / 240)
    factors: dict[int, float] = {}
    for moment, height in moments:
        for step in range(dice.randint(1, 6)):
            factors[moment // STEP + step] = height
    return factors


def _job(name: str, seconds: int, dice: random.Random) -> Iterator[TraceRow]:
    second, runs = 0, dice.random() < 0.5
    while second < seconds:
        cpu = dice.uniform(0.5, 3) if runs else 0.0
        yield TraceRow(second, name, "elastic", int(cpu * SECOND))
        second += dice.randint(120, 900) if runs else dice.randint(60, 600)
        runs = not runs
