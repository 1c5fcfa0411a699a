"""Follows which pods and processes use the cards of a node, from round to round.

Processes of Croupier's own pods and of the namespaces of GPU services are no strangers, nor are the node's
services of NVIDIA: the server of MPS works for its clients, and monitoring opens every card.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from croupier.api.core_v1 import Pod
from croupier.api.gpu.agent_report import AgentReport, CardReport
from croupier.core.cards import card_use
from croupier.core.cards.card_use import CardUse
from croupier.core.model import card_name as naming
from croupier.core.model.gpu_card import GpuCard
from croupier.core.nodes.bootstrap import TRUSTED_NAMESPACES
from croupier.node.agent.round_state import RoundState

SERVICES: Final = ("nvidia-cuda-mps", "nv-hostengine", "dcgm-exporter", "nvidia-smi", "nvidia-persiste")
"""Names of processes, which the kernel cuts after 15 characters."""
_UID_LENGTHS: Final = (32, 36)


class CardUseTracker:
    """`namespace` is Croupier's own, whose pods are no strangers."""

    def __init__(self, node: str, namespace: str) -> None:
        self._node = node
        self._exempt = (*TRUSTED_NAMESPACES, namespace)
        self._uses: dict[str, CardUse] = {}

    def restore(self, last: AgentReport | None) -> None:
        """Continue from the previous report: an agent's restart is no use of a card."""
        for card in last.cards if last is not None else ():
            if card.idle_since is not None:
                self._uses[naming.inventory_id(self._node, card.address)] = CardUse(used=card.idle_since)

    def observe(
        self,
        picture: RoundState,
        users: Mapping[str, Iterable[str]],
        pods: Iterable[Pod],
        now: datetime,
    ) -> None:
        """`users` are the users by address; a card that is missing there could not be asked."""
        if not users and not self._uses:
            return  # the driver has never told anything
        known = list(pods)
        names = {name: _holder(pod) for pod in known for name in (pod.metadata.uid, pod.metadata.key)}
        created = {pod.metadata.key: pod.metadata.creation_timestamp for pod in known}
        self._uses = {
            card_id: card_use.observe(
                self._uses.get(card_id, CardUse()),
                {names[key]: created[key] for key in picture.holders.get(card_id, ()) if key in created},
                self._users(card, users, names),
                now,
            )
            for card_id, card in picture.cards.items()
        }

    def _users(
        self, card: GpuCard, users: Mapping[str, Iterable[str]], names: Mapping[str, str]
    ) -> set[str] | None:
        if card.address not in users:
            return None
        named = (names.get(user) or _unknown(user) for user in users[card.address])
        return {name for name in named if name and name.partition("/")[0] not in self._exempt}

    def with_use(self, report: AgentReport, now: datetime) -> AgentReport:
        return msgspec.structs.replace(report, cards=tuple(self._line(card, now) for card in report.cards))

    def _line(self, card: CardReport, now: datetime) -> CardReport:
        use = self._uses.get(naming.inventory_id(self._node, card.address), CardUse())
        return msgspec.structs.replace(
            card, idle_since=use.idle_since(now), strangers=use.reported_strangers(now)
        )


def _holder(pod: Pod) -> str:
    return f"{pod.metadata.key}/{pod.metadata.uid}"


def _unknown(user: str) -> str:
    """A pod that the API server does not have, or a process of the node. Empty for known services."""
    if len(user) in _UID_LENGTHS and user.replace("-", "").isalnum():
        return f"pod {user}"
    return "" if user in SERVICES else f"process {user}"
