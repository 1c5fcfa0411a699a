"""The state of one round of the agent: inputs and decisions as a value."""

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
    """The requested partitioning of the cards."""

    pools: tuple[Pool, ...] = ()
    targets: Mapping[str, Target] | None = None
    asked: bool = False
    """Whether the node has the annotation run.ai/mig.config."""
    refused: str = ""
    """Why the annotation is refused. Empty if it is valid."""
    troubles: tuple[str, ...] = ()
    text: str = ""
    """The text of the annotation."""

    def target(self, card: str) -> Target | None:
        return (self.targets or {}).get(card)

    def pool(self, card: str) -> Pool | None:
        return next((pool for pool in self.pools if card in pool.cards), None)


@dataclass(frozen=True, slots=True)
class Picture:
    seen: Sighting
    cards: Mapping[str, Seen]
    wants: Wants
    steps: Mapping[str, Step]
    pods: Sequence[PodView]
    given: Sequence[Holding] | None
    """The kubelet's device assignments. None if they cannot be read."""
    alone: bool
    """The node has no GPUDevices, so no ledger keeps new pods off a card."""

    def offered(self) -> list[NodeCard]:
        """The cards that device plugins serve."""
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
        """The allocated devices of a card that will change. None while a granted pod has no devices yet."""
        if self.given is None:
            return None
        served = {holding.pod for holding in self.given}
        granted = {pod.key for pod in self.pods if any(part.card == card_id for part in pod.grant)}
        if granted - served:
            return None
        ids = (device for holding in self.given for device in holding.ids)
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
    """The inputs of a round that do not come from the API server."""

    seen: Sighting
    given: Sequence[Holding] | None
    memory: Mapping[str, Memory]
    busy: Step | None
    """The change in progress."""
    at: float
    unfinished: Container[str] = ()
    """The addresses of cards whose change was interrupted."""


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
    shared, troubles = window.pools()
    pools = sight.ahead(shared, window.devices())
    text = window.layout()
    annotated = mig_config.targets(text, seen.cards) if text is not None else {}
    refused = str(annotated) if isinstance(annotated, Refused) else ""
    planned = [sight.planned(card_id, card) for card_id, card in cards.items()]
    targets = node_plan.targets(planned, pools, {} if isinstance(annotated, Refused) else annotated)
    return Wants(tuple(pools), targets, text is not None, refused, tuple(troubles), text or "")


def in_use(given: Iterable[Holding]) -> set[tuple[str, str]]:
    """Pairs of a card and a pod that has devices of it."""
    return {(devices.unit(device).card, holding.pod) for holding in given for device in holding.ids}
