"""The state of one round of the agent: inputs and decisions as a value."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from croupier.core.model.condition import DesiredCondition
from croupier.core.model.enforcement import CardEnforcement
from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal
from croupier.core.nodes import layout_plan as node_plan
from croupier.core.nodes import mps_daemon, plugin_devices
from croupier.core.nodes import node_conditions as node_state
from croupier.core.nodes.kubelet_assignments import BoundPod, KubeletAssignment
from croupier.core.nodes.layout_plan import CardHistory, LayoutStep, LayoutTarget, PoolLayout
from croupier.core.nodes.mps_daemon import CardClients
from croupier.core.nodes.node_conditions import DevicePluginState
from croupier.core.nodes.plugin_devices import NodeCard, PoolMembership
from croupier.node import node_informers
from croupier.node.agent import mig_config
from croupier.node.cards.card_driver import DriverSnapshot
from croupier.node.mps.share_enforcer import NodeShares
from croupier.node.node_informers import NodeInformers


@dataclass(frozen=True, slots=True)
class DesiredLayouts:
    """The requested partitioning of the cards."""

    pools: tuple[PoolLayout, ...] = ()
    targets: Mapping[str, LayoutTarget] | None = None
    asked: bool = False
    """Whether the node has the annotation run.ai/mig.config."""
    refused: str = ""
    """Why the annotation is refused. Empty if it is valid."""
    troubles: tuple[str, ...] = ()
    text: str = ""
    """The text of the annotation."""

    def target(self, card: str) -> LayoutTarget | None:
        return (self.targets or {}).get(card)

    def pool(self, card: str) -> PoolLayout | None:
        return next((pool for pool in self.pools if card in pool.cards), None)


@dataclass(frozen=True, slots=True)
class RoundState:
    seen: DriverSnapshot
    cards: Mapping[str, GpuCard]
    wants: DesiredLayouts
    steps: Mapping[str, LayoutStep]
    pods: Sequence[PodView]
    given: Sequence[KubeletAssignment] | None
    """The kubelet's device assignments. None if they cannot be read."""
    without_ledger: bool
    """The node has no GPUDevices, so no ledger keeps new pods off a card."""
    holders: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The pods with an allocation or with devices of each card, as `namespace/name`."""
    enforcement: Mapping[str, CardEnforcement | None] = field(default_factory=dict)
    """What enforces shares, by card."""

    def shares(self, pods: Callable[[], Sequence[BoundPod]]) -> NodeShares:
        """What the enforcement of shares depends on. The use of cards is counted for real cards only."""
        cards, given = {card.id: card for card in self.offered()}, self.given

        def uses() -> Mapping[str, CardClients] | None:
            return mps_daemon.uses(cards, given, pods()) if given is not None else None

        return NodeShares(cards, uses, self.seen.cuda, frozenset(pod.uid for pod in self.pods))

    def offered(self) -> list[NodeCard]:
        """The cards that device plugins serve."""
        return [self._offered(card_id, card) for card_id, card in self.cards.items()]

    def _offered(self, card_id: str, card: GpuCard) -> NodeCard:
        step, pool = self.steps[card_id], self.wants.pool(card_id)
        return NodeCard(
            id=card_id,
            gpu=card.without_readings(),
            changing=step.state == "Changing",
            pool=None if pool is None else PoolMembership(pool.name, pool.sharing),
            enforcement=self.enforcement.get(card_id),
            kept=self._kept(card_id) if step.state in node_informers.IN_PROGRESS else None,
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
        return frozenset(device for device in ids if plugin_devices.parse_unit(device).card == card_id)

    def mig_state(self) -> str:
        by_annotation = [step for card, step in self.steps.items() if self.wants.pool(card) is None]
        return node_state.mig_state(by_annotation, asked=self.wants.asked, refused=self.wants.refused)

    def conditions(self, service: DevicePluginState) -> tuple[DesiredCondition, ...]:
        indexes = {card_id: card.index for card_id, card in self.cards.items()}
        layout = node_state.layout_condition(list(self.steps.values()), indexes, self.wants.refused)
        return layout, node_state.plugin_condition(service)


@dataclass(frozen=True, slots=True)
class RoundInputs:
    """The inputs of a round that do not come from the API server."""

    seen: DriverSnapshot
    given: Sequence[KubeletAssignment] | None
    history: Mapping[str, CardHistory]
    busy: LayoutStep | None
    """The change in progress."""
    at: float
    unfinished: Container[str] = ()
    """The addresses of cards whose change was interrupted."""
    owned: Container[str] = ()
    """The addresses of cards that an MPS daemon owns."""


def build(informers: NodeInformers, now: RoundInputs) -> RoundState:
    cards = node_informers.cards_by_id(informers.name, now.seen.cards)
    wants = _desired_layouts(informers, now.seen, cards)
    pods, known = informers.unfinished_pods(), tuple(informers.devices())
    holders = node_informers.holders_by_card(informers.name, pods, cards, without_ledger=not known)
    for card_id, pod in in_use(now.given or ()):
        holders.setdefault(card_id, []).append(pod)
    steps = {}
    for card_id, card in cards.items():
        if now.busy is not None and now.busy.card == card_id:
            steps[card_id] = now.busy
            continue
        target = wants.target(card_id)
        ties = node_informers.change_blockers(card_id, target, known, holders.get(card_id, ()))
        ties = replace(ties, assignments_unknown=now.given is None, daemon=card.address in now.owned)
        memory = now.history.get(card_id, CardHistory())
        memory = replace(memory, unfinished=card.address in now.unfinished)
        steps[card_id] = node_plan.step(card_id, card, target, memory, blockers=ties, now=now.at)
    return RoundState(
        now.seen, cards, wants, steps, pods, now.given, without_ledger=not known, holders=holders
    )


def _desired_layouts(
    informers: NodeInformers, seen: DriverSnapshot, cards: Mapping[str, GpuCard]
) -> DesiredLayouts:
    shared, troubles = informers.pools()
    pools = node_informers.with_card_overrides(shared, informers.devices())
    text = informers.layout()
    annotated = mig_config.targets(text, seen.cards) if text is not None else {}
    refused = str(annotated) if isinstance(annotated, Refusal) else ""
    targets = node_plan.targets(cards, pools, {} if isinstance(annotated, Refusal) else annotated)
    return DesiredLayouts(tuple(pools), targets, text is not None, refused, tuple(troubles), text or "")


def in_use(given: Iterable[KubeletAssignment]) -> set[tuple[str, str]]:
    """Pairs of a card and a pod that has devices of it."""
    return {
        (plugin_devices.parse_unit(device).card, holding.pod) for holding in given for device in holding.ids
    }
