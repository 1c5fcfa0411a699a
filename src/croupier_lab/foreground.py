"""`croupier lab up`: start a lab, run it in the foreground, and stop it on a signal.

The first Ctrl-C (or SIGTERM, or SIGHUP) stops everything in order; the second kills it.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from croupier.capacity.manager import CapacityManagerKind
from croupier_lab import (
    agents,
    croupier_processes,
    errors,
    fleet,
    installation,
    lifecycle,
    process,
    realnode,
    record,
)
from croupier_lab.errors import LabError
from croupier_lab.lab import Lab
from croupier_lab.lifecycle import LabPlan
from croupier_lab.nodes import SimulatedNode
from croupier_lab.progress import ProgressReporter

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL = 0.3


@dataclass(frozen=True, slots=True)
class LabSpec:
    """The requested lab and its content."""

    plan: LabPlan
    nodes: Sequence[SimulatedNode] = ()
    real_node: bool = False
    capacity_manager: CapacityManagerKind | None = None
    """Run Croupier with this capacity manager; not at all if None."""
    cards: str | None = None
    """Simulated cards of the real node, MODEL:COUNT."""
    agents: bool = False
    """Run an agent for the simulated nodes."""
    heartbeat: float = 10.0
    """Seconds between the heartbeats of that agent; a card is usable after three."""
    detach: bool = False

    @property
    def runs_croupier(self) -> bool:
        """Whether the lab runs processes of Croupier."""
        return self.capacity_manager is not None or self.cards is not None or self.agents


class InterruptedWhileStartingError(Exception):
    """A signal arrived during start-up; the lab was stopped."""


async def up(wish: LabSpec, show: ProgressReporter, tell: Callable[[Lab, bool], None]) -> None:
    """Start the lab or reuse a running one, call `tell`, and wait for a signal unless detached."""
    if wish.real_node and (reason := realnode.obstacle()):
        raise LabError(reason)
    with _signals(wish.plan.place, show):
        try:
            lab, raised = await lifecycle.up(wish.plan, show)
            if (
                wish.runs_croupier
                and not raised
                and (reason := await installation.existing_installation(lab))
            ):
                raise LabError(reason)
            try:
                await populate(lab, wish, show)
            except BaseException:
                if raised:
                    await asyncio.shield(lifecycle.stop(lab))
                raise
        except asyncio.CancelledError:
            raise InterruptedWhileStartingError from None
        if wish.detach and raised:
            lifecycle.detach(lab)
        tell(lab, raised)
        if raised and not wish.detach:
            await _wait_until_stopped(lab, show)


async def populate(lab: Lab, wish: LabSpec, show: ProgressReporter) -> None:
    """Add the nodes and the processes of `wish` to a running lab. Existing ones are kept."""
    await fleet.create(lab, wish.nodes, show)
    if wish.real_node and lab.record.real_node is None:
        await lifecycle.join_real_node(lab, wish.plan.sources, show)
    if wish.capacity_manager is not None:
        has_agents = wish.agents or wish.cards is not None
        await croupier_processes.start_croupier(
            lab, wish.capacity_manager, show, webhook=True, cards=has_agents
        )
    if wish.cards is not None:
        await agents.start_node_agent(lab, wish.cards, show)
    if wish.agents:
        await agents.start_fleet(lab, show, heartbeat=wish.heartbeat)


async def _wait_until_stopped(lab: Lab, show: ProgressReporter) -> None:
    try:
        while all(map(process.alive, lab.record.processes)):  # noqa: ASYNC110 (an exit is not signalled)
            await asyncio.sleep(POLL)
    except asyncio.CancelledError:
        show.step(f"Stopping lab {lab.name}")
        await lifecycle.stop(lab)
        return
    dead = next(part for part in lab.record.processes if not process.alive(part))
    await lifecycle.stop(lab)
    raise errors.with_log(f"{dead.name} exited, so lab {lab.name} was stopped.", Path(dead.log))


@contextlib.contextmanager
def _signals(folder: Path, show: ProgressReporter) -> Iterator[None]:
    """The first signal cancels the current task; the next one kills all processes of the lab."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    signalled = [False]

    def on_signal() -> None:
        if not signalled[0] and task is not None:
            signalled[0] = True
            task.cancel()
            return
        show.say("Killing all processes")
        for running in _recorded_processes(folder):
            process.kill(running)

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def _recorded_processes(folder: Path) -> Sequence[process.LabProcess]:
    stored = record.load(folder)
    return stored.processes if stored else ()
