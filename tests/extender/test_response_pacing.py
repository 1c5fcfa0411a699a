"""Concurrent responses are paced; a single response is not delayed."""

from dataclasses import dataclass, field

from croupier.extender.response_pacing import ResponsePacer
from croupier.kube.client.clock import SystemClock


@dataclass
class Still(SystemClock):
    """Time does not move; sleeps are recorded and return at once."""

    now_: float = 0.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now_

    async def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))


async def test_concurrent_responses_are_paced():
    clock = Still()
    turnstile = ResponsePacer(clock, gap=0.01)

    for _ in range(4):
        await turnstile.wait_turn()

    assert clock.slept == [0.01, 0.02, 0.03]


async def test_a_single_response_is_not_delayed():
    clock = Still()
    turnstile = ResponsePacer(clock, gap=0.01)
    await turnstile.wait_turn()
    clock.now_ = 5.0

    await turnstile.wait_turn()

    assert clock.slept == []


async def test_the_delay_is_limited():
    clock = Still()
    turnstile = ResponsePacer(clock, gap=0.01, longest=0.02)

    for _ in range(20):
        await turnstile.wait_turn()

    assert max(clock.slept) == 0.02
    assert len(clock.slept) == 2, "the other responses were not delayed"
