"""Hears the agents: whether each still renews its Lease, and when it will be silent if it does not.

Silence takes the cards of a node from everybody who asks, so it must be the agent's and not ours. Before an
agent is called silent, its Lease is read directly. Where the API server is away or slow nobody can be
heard, and nobody can have renewed anything: then the agent gets its time anew.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from croupier.api.core_v1 import Lease
from croupier.controllers.inventory.reading import Look
from croupier.core.cards import silence
from croupier.core.cards.silence import Heard
from croupier.kube.clock import Clock
from croupier.kube.errors import NotFound

SLOW: Final = 5.0
"""Seconds after which an answer says more about the API server than about an agent."""


@dataclass(slots=True)
class Listening:
    read: Callable[[Lease], Awaitable[Lease]]
    """The Lease as the API server has it now."""
    clock: Clock
    patience: float
    """Seconds without a sign of life."""
    _heard: dict[str, Heard] = field(default_factory=dict)

    def clear(self) -> None:
        self._heard.clear()

    def forget(self, node: str) -> None:
        self._heard.pop(node, None)

    async def silent(self, look: Look) -> bool | None:
        """None where there is no agent. Raises what reading a Lease raises."""
        if look.lease is None:
            self.forget(look.name)
            return None
        heard = self._listen(look, look.lease)
        if not heard.is_silent(self.clock.monotonic(), self.patience):
            return False
        if look.was_silent:
            return True
        return await self._confirmed(look.lease, look.name, heard)

    def left(self, node: str) -> float:
        """Seconds until the node's agent is silent, if it is not heard; 0: it is, or there is none."""
        heard = self._heard.get(node)
        return 0.0 if heard is None else heard.left(self.clock.monotonic(), self.patience)

    def _listen(self, look: Look, lease: Lease) -> Heard:
        now, before = self.clock.monotonic(), self._heard.get(look.name)
        heard = silence.listen(before, lease.spec.renew_time, now, was_silent=look.was_silent)
        self._heard[look.name] = heard
        return heard

    async def _confirmed(self, lease: Lease, node: str, heard: Heard) -> bool | None:
        asked, excused = self.clock.monotonic(), True
        try:
            live = await self.read(lease)
            slow = self.clock.monotonic() - asked > SLOW
            excused = slow or live.spec.renew_time != heard.sign
            return not excused
        except NotFound:
            excused = False
            return None
        finally:
            if excused:
                self._heard[node] = Heard(heard.sign, self.clock.monotonic())
