"""Everything one round of the agent knows and decides, as a value: what is seen, wanted, offered and told."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from croupier.core.ledgers.ledger import Refused
from croupier.core.nodes import devices
from croupier.core.nodes import plan as node_plan
from croupier.core.nodes import state as node_state
from croupier.core.nodes.devices import CardSlot, Membership, NodeCard
from croupier.core.nodes.handed import Holding
from croupier.core.nodes.plan import Memory, Pool, Step, Target
from croupier.core.nodes.state import Service, Standing
from croupier.core.pods.pod import PodView
from croupier.node.agent import mig_config, sight
from croupier.node.agent.sight import Window
from croupier.node.cards.cards import Seen, Sighting


@dataclass(frozen=True, slots=True)
class Wants:
    """How cards shall be cut, by whom."""

    pools: tuple[Pool, ...] = ()
    targets: Mapping[str, Target] | None = None
    asked: bool = False
    """The node has the annotation run.ai/mig.config,"""
    refused: str = ""
    """which is not followed, because."""
    troubles: tuple[str, ...] = ()
    text: str = ""
    """What the annotation says."""

    def target(self, card: str) -> Target | None:
        return (self.targets or {}).get(card)

    def pool(self, card: str) -> Pool | None:
        return next((one for one in self.pools if card in one.cards), None)


@dataclass(frozen=True, slots=True)
class Picture:
    seen: Sighting
    cards: Mapping[str, Seen]
    wants: Wants
    steps: Mapping[str, Step]
    pods: Sequence[PodView]
    given: Sequence[Holding] | None
    """What the kubelet gave to whom; None if it does not tell."""
    alone: bool
    """The node has no GPUDevices: no ledger keeps new pods off a card."""

    def offered(self) -> list[NodeCard]:
        """The cards as device plugins serve them."""
        return [self._offered(card_id, card) for card_id, card in self.cards.items()]

    def _offered(self, card_id: str, card: Seen) -> NodeCard:
        step, pool = self.steps[card_id], self.wants.pool(card_id)
        return NodeCard(
            id=card_id,
            index=card.index,
            uuid=card.uuid,
            memory_mib=card.memory_mib,
            healthy=card.health.healthy,
            changing=step.state == "Changing",
            mig_enabled=card.mig_enabled,
            slots=tuple(CardSlot(slot.id, slot.profile, slot.uuid) for slot in card.slots),
            pool=None if pool is None else Membership(pool.name, pool.sharing, pool.slices),
            kept=self._kept(card_id) if step.state in sight.UNDER_WAY else None,
        )

    def _kept(self, card_id: str) -> frozenset[str] | None:
        """What pods have of a card that is to be changed; all of it while one has yet to be served."""
        if self.given is None:
            return None
        served = {one.pod for one in self.given}
        due = {pod.key for pod in self.pods if any(part.card == card_id for part in pod.grant)}
        if due - served:
            return None
        ids = (device for one in self.given for device in one.ids)
        return frozenset(device for device in ids if devices.unit(device).card == card_id)

    def mig_state(self) -> str:
        by_annotation = [step for card, step in self.steps.items() if self.wants.pool(card) is None]
        return node_state.mig_state(by_annotation, asked=self.wants.asked, refused=self.wants.refused)

    def standing(self, service: Service) -> tuple[Standing, ...]:
        indexes = {card_id: card.index for card_id, card in self.cards.items()}
        layout = node_state.layout(list(self.steps.values()), indexes, self.wants.refused)
        return layout, node_state.service(service)


@dataclass(frozen=True, slots=True)
class Now:
    """What a round found beside the objects of the API server."""

    seen: Sighting
    given: Sequence[Holding] | None
    memory: Mapping[str, Memory]
    busy: Step | None
    """The change that is being carried out."""
    at: float
    unfinished: Container[str] = ()
    """Addresses of cards whose change was cut off."""


def draw(window: Window, now: Now) -> Picture:
    cards = sight.cards(window.name, now.seen.cards)
    wants = _wants(window, now.seen, cards)
    pods, known = window.live(), tuple(window.devices())
    holders = sight.holders(window.name, pods, cards, alone=not known)
    for card_id, pod in in_use(now.given or ()):
        holders.setdefault(card_id, []).append(pod)
    steps = {}
    for card_id, card in cards.items():
        if now.busy is not None and now.busy.card == card_id:
            steps[card_id] = now.busy
            continue
        target = wants.target(card_id)
        ties = sight.ties(card_id, target, known, holders.get(card_id, ()))
        ties = replace(ties, untold=now.given is None)
        memory = now.memory.get(card_id, Memory())
        planned = sight.planned(card_id, card, now.unfinished)
        steps[card_id] = node_plan.step(planned, target, memory, ties=ties, now=now.at)
    return Picture(now.seen, cards, wants, steps, pods, now.given, alone=not known)


def _wants(window: Window, seen: Sighting, cards: Mapping[str, Seen]) -> Wants:
    found, troubles = window.pools()
    pools = sight.ahead(found, window.devices())
    text = window.layout()
    wished = mig_config.targets(text, seen.cards) if text is not None else {}
    refused = str(wished) if isinstance(wished, Refused) else ""
    planned = [sight.planned(card_id, card) for card_id, card in cards.items()]
    targets = node_plan.targets(planned, pools, {} if isinstance(wished, Refused) else wished)
    return Wants(tuple(pools), targets, text is not None, refused, tuple(troubles), text or "")


def in_use(given: Iterable[Holding]) -> set[tuple[str, str]]:
    """Cards of which the kubelet has given something, and to whom."""
    return {(devices.unit(device).card, one.pod) for one in given for device in one.ids}
