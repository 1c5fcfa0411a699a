"""Decides the next step of the MPS control daemon of a card.

While a daemon owns a card, the card is in compute mode EXCLUSIVE_PROCESS. A daemon that pods use is never
ended: one that died or hangs withholds the card until these pods have ended. Every step can be repeated, so
an agent that is killed between two steps continues with the next one.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from croupier.core.model.card_request import WHOLE_CARD
from croupier.core.model.name_list import named
from croupier.core.nodes import kubelet_assignments, plugin_devices
from croupier.core.nodes.kubelet_assignments import BoundPod, KubeletAssignment
from croupier.core.nodes.plugin_devices import NodeCard
from croupier.core.pods import request_parser

STEP_TIMEOUT: Final = 15.0
"""Seconds that a daemon has to start or to end."""
FIRST_RETRY: Final = 5.0
LAST_RETRY: Final = 300.0
"""Seconds until a daemon that ended by itself is started again: the first and the longest delay."""
STATIC_CUDA: Final = (13, 1)
"""The first CUDA version whose daemon has static partitions of multiprocessors."""
STATIC_COMPUTE: Final = 8
"""The first major compute capability with static partitions."""
_MAX_NAMED: Final = 3

ComputeMode: TypeAlias = Literal["", "Default", "ExclusiveThread", "Prohibited", "ExclusiveProcess"]
"""NVML's compute mode of a card. Empty if it is unknown."""
DaemonAction: TypeAlias = Literal["Prepare", "SetExclusive", "Start", "Quit", "Kill", "SetDefault", "Forget"]
"""Prepare: record that the card gets a daemon. Kill: end the daemon and its servers by signals."""


@dataclass(frozen=True, slots=True)
class CardClients:
    """The pods that use a card, by the kubelet's assignments and by their grants."""

    shares: Mapping[str, int] = field(default_factory=dict)
    """Percent of the card by pod."""
    others: frozenset[str] = frozenset()
    """Pods that use the whole card, its MIG devices or its time slices."""


@dataclass(frozen=True, slots=True)
class DaemonRequest:
    """What the agent asked the MPS supervisor for. A new generation starts a new daemon."""

    generation: int = 0
    run: bool = False
    static: bool = False
    """The daemon has static partitions."""


@dataclass(frozen=True, slots=True)
class DaemonRecord:
    """What the supervisor recorded about the daemon of a card."""

    generation: int
    pid: int = 0
    alive: bool = False
    servers: int = 0
    """The number of MPS servers of the card, of any daemon."""
    message: str = ""
    """Why the daemon ended, or was not started."""


@dataclass(frozen=True, slots=True)
class DaemonView:
    """Everything that the next step of a card depends on."""

    wanted: bool
    use: CardClients | None = None
    """None if the assignments of the kubelet are unknown."""
    mode: ComputeMode = ""
    request: DaemonRequest | None = None
    record: DaemonRecord | None = None
    answered_by: int | None = None
    """The process that answers on the pipe of the card. None if the daemon does not answer."""
    supervised: bool = True
    """The supervisor that starts daemons is running."""
    since_step: float = float("inf")
    """Seconds since the last step for this card."""
    retry_in: float = 0.0
    """Seconds until a daemon that ended by itself may be started again."""


@dataclass(frozen=True, slots=True)
class Off:
    """The card has no daemon and needs none."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The daemon answers, and the card belongs to it."""


@dataclass(frozen=True, slots=True)
class Act:
    """Do this, then decide again."""

    action: DaemonAction


@dataclass(frozen=True, slots=True)
class Withhold:
    """Nothing can be done now. `reason` is the sentence in the status of the card."""

    reason: str
    failed: bool = False
    """Something is wrong; otherwise a step takes its time."""


DaemonDecision: TypeAlias = Off | Ready | Act | Withhold

NO_SUPERVISOR: Final = Withhold(
    "no process `croupier mps` runs on the node, so its cards have no MPS daemon; start it, or set"
    " enforcement to HAMiCore or None",
    failed=True,
)
_STARTING: Final = Withhold("its MPS daemon is starting")
_ENDING: Final = Withhold("its MPS daemon is being ended")


def decide(view: DaemonView) -> DaemonDecision:
    if view.request is None:
        return _without_request(view) if view.wanted else Off()
    if view.wanted:
        return _keep(view, view.request)
    return _end(view, view.request)


def _without_request(view: DaemonView) -> DaemonDecision:
    if view.use is None:
        return Withhold("the device assignments of the kubelet are not known yet")
    if view.use.others:
        return Withhold(f"its MPS daemon is started after {_pods(view.use.others)}")
    if view.mode != "Default":
        what = f"is in compute mode {view.mode}" if view.mode else "does not tell its compute mode"
        return Withhold(
            f"the card {what}; only a card in compute mode Default gets an MPS daemon: end the program"
            " that set it, and set it back with nvidia-smi -c DEFAULT",
            failed=True,
        )
    return Act("Prepare") if view.supervised else NO_SUPERVISOR


def _keep(view: DaemonView, request: DaemonRequest) -> DaemonDecision:
    record = view.record
    if record is not None and record.alive:
        return _watch(view, request, record)
    if record is not None and record.servers:
        if users := _users(view):
            return Withhold(f"its MPS daemon ended; it is started again after {users}", failed=True)
        return _kill(request)
    return _begin(view, request) if view.supervised else NO_SUPERVISOR


def _begin(view: DaemonView, request: DaemonRequest) -> DaemonDecision:
    """No process of the daemon is left, or none was started yet."""
    record = view.record
    if request.run and (record is None or record.generation < request.generation):
        if view.since_step < STEP_TIMEOUT:
            return _STARTING
        return Withhold("its MPS daemon was not started: see the log of `croupier mps`", failed=True)
    if request.run and record is not None and view.retry_in > 0:
        return Withhold(f"its MPS daemon ended: {record.message or 'no reason is known'}", failed=True)
    return Act("SetExclusive") if view.mode != "ExclusiveProcess" else Act("Start")


def _watch(view: DaemonView, request: DaemonRequest, record: DaemonRecord) -> DaemonDecision:
    """The daemon's process is alive."""
    if not request.run:
        return _ENDING
    if view.answered_by is not None and view.answered_by != record.pid:
        return Withhold(
            f"another MPS daemon (process {view.answered_by}) answers in the card's folder; end it",
            failed=True,
        )
    if view.answered_by is not None:
        return Act("SetExclusive") if view.mode not in ("ExclusiveProcess", "") else Ready()
    if view.since_step < STEP_TIMEOUT:
        return _STARTING
    if users := _users(view):
        return Withhold(f"its MPS daemon does not answer; it is started again after {users}", failed=True)
    return Act("Kill")


def _end(view: DaemonView, request: DaemonRequest) -> DaemonDecision:
    record = view.record
    running = record is not None and (record.alive or record.servers > 0)
    if not running and not view.mode:
        return Withhold("the card does not tell its compute mode", failed=True)
    if not running:
        return Act("SetDefault") if view.mode == "ExclusiveProcess" else Act("Forget")
    if users := _users(view):
        return Withhold(f"its MPS daemon ends after {users}")
    if request.run and view.answered_by is not None:
        return Act("Quit") if view.since_step >= 1 else _ENDING
    return _ENDING if view.since_step < STEP_TIMEOUT else _kill(request)


def _kill(request: DaemonRequest) -> DaemonDecision:
    return Act("Kill") if request.run else _ENDING


def _users(view: DaemonView) -> str:
    """The pods that use shares of the card. Empty if it is certain that there are none."""
    if view.use is None:
        return "the kubelet has reported its device assignments"
    return _pods(view.use.shares) if view.use.shares else ""


def _pods(keys: Collection[str]) -> str:
    names = sorted(keys)
    return f"{named(names, _MAX_NAMED)} {'has' if len(names) == 1 else 'have'} ended"


def uses(
    cards: Mapping[str, NodeCard], given: Iterable[KubeletAssignment], pods: Iterable[BoundPod]
) -> dict[str, CardClients]:
    """How each card is used. A grant counts from the binding on, before the kubelet assigns devices."""
    shares: dict[str, dict[str, int]] = {card: {} for card in cards}
    others: dict[str, set[str]] = {card: set() for card in cards}
    for holding in given:
        units = [plugin_devices.parse_unit(device) for device in holding.ids]
        for card in {unit.card for unit in units} & cards.keys():
            percent = sum(unit.is_percent for unit in units if unit.card == card)
            if percent:
                shares[card][holding.pod] = shares[card].get(holding.pod, 0) + percent
            else:
                others[card].add(holding.pod)
    for pod in pods:
        for resource in pod.wants:
            for part in kubelet_assignments.granted(pod, resource, cards):
                if part.share and _by_percent(cards[part.card], resource):
                    shares[part.card][pod.key] = max(shares[part.card].get(pod.key, 0), part.share)
                elif pod.key not in shares[part.card]:
                    others[part.card].add(pod.key)
    return {card: CardClients(shares[card], frozenset(others[card])) for card in cards}


def _by_percent(card: NodeCard, resource: str) -> bool:
    if resource.startswith(request_parser.POOL):
        return card.pool is not None and card.pool.sharing.mode == "MPS"
    return resource == request_parser.PERCENT


def is_wanted(card: NodeCard, use: CardClients | None) -> bool:
    """A card of a pool always has its daemon; a card without a pool has one while pods use shares of it."""
    if card.changing or card.gpu.mig_enabled or card.gpu.slots or not card.gpu.uuid:
        return False
    if card.pool is not None:
        return card.pool.sharing.mode == "MPS" and card.pool.sharing.enforcement == "MPS"
    return use is not None and bool(use.shares)


def client_limit(shares: Iterable[int]) -> int | None:
    """The daemon's limit for clients without a limit of their own: the largest share. None without pods."""
    return min(max(shares, default=0), WHOLE_CARD) or None


def has_static_partitions(cuda: str, compute_major: int) -> bool:
    """Whether the driver's MPS daemon can partition this card."""
    major, _, minor = cuda.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        return False
    return (int(major), int(minor)) >= STATIC_CUDA and compute_major >= STATIC_COMPUTE


def chunks(percent: int, total: int) -> int:
    """The chunks of a static partition: rounded down, so that all shares of a card fit, but at least one."""
    return max(1, percent * total // WHOLE_CARD)


def retry_delay(failures: int) -> float:
    return float(min(FIRST_RETRY * 2 ** max(0, failures - 1), LAST_RETRY))
