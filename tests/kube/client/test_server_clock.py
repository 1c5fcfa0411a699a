"""The time of the API server, from the Date header of its responses."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.kube.client import api_client, config
from croupier.kube.client.clock import SystemClock
from croupier.kube.client.server_clock import ServerClock
from croupier.kube.client.transport import ApiRequest

NOON = datetime(2030, 1, 31, 12, 0, 0, tzinfo=UTC)
HOUR = 3600.0
RESPONSE = st.tuples(st.floats(0, 100), st.floats(0, 2), st.floats(0, 2))
"""Seconds until the request, from the request to the answer, and from the answer to its arrival."""


@dataclass
class MachineClock:
    """The clock of a machine that is wrong by `offset` seconds."""

    offset: float = 0.0
    passed: float = 0.0
    boot: float = field(default=12345.0)

    @property
    def right(self) -> datetime:
        return NOON + timedelta(seconds=self.passed)

    def now(self) -> datetime:
        return self.right + timedelta(seconds=self.offset)

    def monotonic(self) -> float:
        return self.boot + self.passed

    async def sleep(self, seconds: float) -> None:
        self.passed += seconds


def respond(machine: MachineClock, clock: ServerClock, response: tuple[float, float, float]) -> None:
    """A request, and a response whose Date has whole seconds."""
    before, until_answer, until_arrival = response
    machine.passed += before
    sent = machine.monotonic()
    machine.passed += until_answer
    date = format_datetime(machine.right, usegmt=True)
    machine.passed += until_arrival
    clock.observe(date, sent=sent)


def error(machine: MachineClock, clock: ServerClock) -> float:
    return abs((clock.now() - machine.right).total_seconds())


@given(st.floats(-1e6, 1e6), st.lists(RESPONSE, min_size=1, max_size=8))
def test_the_time_is_right_however_wrong_the_machine_is(
    offset: float, responses: Sequence[tuple[float, float, float]]
) -> None:
    machine = MachineClock(offset)
    clock = ServerClock(machine)
    fastest = float("inf")
    for response in responses:
        respond(machine, clock, response)
        machine.passed += 7.5

        fastest = min(fastest, sum(response[1:]))
        assert error(machine, clock) <= fastest + 1.001


@given(st.lists(RESPONSE, min_size=1, max_size=8))
def test_a_right_clock_is_not_corrected(responses: Sequence[tuple[float, float, float]]) -> None:
    machine = MachineClock()
    clock = ServerClock(machine)
    for response in responses:
        respond(machine, clock, response)

        assert clock.now() == machine.now()


@pytest.mark.parametrize("offset", [HOUR, -HOUR])
def test_a_clock_that_is_set_wrong_while_the_process_runs(offset):
    machine = MachineClock()
    clock = ServerClock(machine)
    respond(machine, clock, (0.0, 0.01, 0.01))

    machine.offset = offset

    assert error(machine, clock) < 1.1


def test_a_changed_clock_of_the_server_is_followed():
    machine = MachineClock(-HOUR)
    clock = ServerClock(machine)
    respond(machine, clock, (0.0, 0.01, 0.01))
    date = format_datetime(machine.right + timedelta(minutes=10), usegmt=True)

    clock.observe(date, sent=machine.monotonic())

    assert abs((clock.now() - machine.right).total_seconds() - 600) < 1.1


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_without_a_readable_date_it_is_the_time_of_the_machine(date):
    machine = MachineClock(HOUR)
    clock = ServerClock(machine)

    clock.observe(date, sent=0.0)

    assert clock.now() == machine.now()


@pytest.mark.parametrize("offset", [HOUR, -HOUR])
async def test_the_client_has_the_time_of_the_api_server(cluster: Any, offset: float) -> None:
    class WrongClock(SystemClock):
        def now(self) -> datetime:
            return super().now() + timedelta(seconds=offset)

    async with api_client.connect(config.load(cluster.kubeconfig), clock=WrongClock()) as api:
        assert abs(api.clock.now() - SystemClock().now()) > timedelta(minutes=59)
        await api.raw(ApiRequest("GET", "/version"))

        for client in (api, api.with_field_manager("other"), api.fenced(lambda: None)):
            assert abs(client.clock.now() - SystemClock().now()) < timedelta(minutes=1)
