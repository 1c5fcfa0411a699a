"""A lab for as long as somebody watches it: raised, held, and ended on a signal.

The first Ctrl-C (or SIGTERM, or a closed terminal) lets everything stop in
order; the second ends it at once.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from croupier.book.manager import Book
from croupier.lab import agents, dealer, errors, fleet, installation, lifecycle, process, realnode, record
from croupier.lab.errors import LabError
from croupier.lab.lab import Lab
from croupier.lab.lifecycle import Plan
from croupier.lab.nodes import SimulatedNode
from croupier.lab.progress import Progress

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK_EVERY = 0.3


@dataclass(frozen=True, slots=True)
class Wish:
    """A lab, what is in it, and whether it should outlive us."""

    plan: Plan
    nodes: Sequence[SimulatedNode] = ()
    real_node: bool = False
    dealer: Book | None = None
    """Croupier itself, with its book kept there; none if unset."""
    cards: str | None = None
    """The simulated cards of the real node, MODEL:COUNT."""
    agents: bool = False
    """Play the node side of simulated nodes, too."""
    detach: bool = False

    @property
    def deals(self) -> bool:
        """Processes of ours look after cards in it."""
        return self.dealer is not None or self.cards is not None or self.agents


class InterruptedWhileStartingError(Exception):
    """A signal came before the lab was up; nothing is left of it."""


async def up(wish: Wish, show: Progress, tell: Callable[[Lab, bool], None]) -> None:
    """Raise the lab (or find it running), `tell` so, and hold it until a signal, unless detached."""
    if wish.real_node and (reason := realnode.obstacle()):
        raise LabError(reason)
    with _signals(wish.plan.place, show):
        try:
            lab, raised = await lifecycle.up(wish.plan, show)
            if wish.deals and not raised and (reason := await installation.conflict(lab)):
                raise LabError(reason)
            await _fill(lab, wish, show, end_on_failure=raised)
        except asyncio.CancelledError:
            raise InterruptedWhileStartingError from None
        if wish.detach and raised:
            lifecycle.detach(lab)
        tell(lab, raised)
        if raised and not wish.detach:
            await _hold(lab, show)


async def _fill(lab: Lab, wish: Wish, show: Progress, *, end_on_failure: bool) -> None:
    try:
        await fleet.create(lab, wish.nodes, show)
        if wish.real_node and lab.record.real_node is None:
            await lifecycle.join_real_node(lab, wish.plan.sources, show)
        if wish.dealer is not None:
            looked_after = wish.agents or wish.cards is not None
            await dealer.join(lab, wish.dealer, show, webhook=True, cards=looked_after)
        if wish.cards is not None:
            await agents.serve(lab, wish.cards, show)
        if wish.agents:
            await agents.play(lab, show)
    except BaseException:
        if end_on_failure:
            await asyncio.shield(lifecycle.end(lab))
        raise


async def _hold(lab: Lab, show: Progress) -> None:
    try:
        while all(map(process.alive, lab.record.processes)):  # noqa: ASYNC110 (the dead tell nobody)
            await asyncio.sleep(LOOK_EVERY)
    except asyncio.CancelledError:
        show.step(f"Stopping lab {lab.name}")
        await lifecycle.end(lab)
        return
    dead = next(one for one in lab.record.processes if not process.alive(one))
    await lifecycle.end(lab)
    raise errors.with_log(f"{dead.name} ended by itself, so lab {lab.name} was stopped.", Path(dead.log))


@contextlib.contextmanager
def _signals(folder: Path, show: Progress) -> Iterator[None]:
    """The first signal cancels what we do; a later one kills what runs, so that stopping ends at once."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    asked = [False]

    def on_signal() -> None:
        if not asked[0] and task is not None:
            asked[0] = True
            task.cancel()
            return
        show.say("Ending at once")
        for one in _recorded(folder):
            process.kill(one)

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


def _recorded(folder: Path) -> Sequence[process.Process]:
    remembered = record.load(folder)
    return remembered.processes if remembered else ()
