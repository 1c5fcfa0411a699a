"""Answers that come together leave one after the other; one that comes alone does not wait."""

from dataclasses import dataclass, field

from croupier.extender.turnstile import Turnstile
from croupier.kube.clock import SystemClock


@dataclass
class Still(SystemClock):
    """Time stands still; who sleeps is written down and wakes at once."""

    now_: float = 0.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now_

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))


async def test_answers_that_come_together_leave_one_after_the_other():
    clock = Still()
    turnstile = Turnstile(clock, gap=0.01)

    for _ in range(4):
        await turnstile.leave()

    assert clock.slept == [0.01, 0.02, 0.03]


async def test_one_that_comes_alone_does_not_wait():
    clock = Still()
    turnstile = Turnstile(clock, gap=0.01)
    await turnstile.leave()
    clock.now_ = 5.0

    await turnstile.leave()

    assert clock.slept == []


async def test_nobody_is_kept_back_for_long():
    clock = Still()
    turnstile = Turnstile(clock, gap=0.01, longest=0.02)

    for _ in range(20):
        await turnstile.leave()

    assert max(clock.slept) == 0.02
    assert len(clock.slept) == 2, "the others left at once"
