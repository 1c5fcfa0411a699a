"""What enforces the shares of a card, and whether they can be allocated now."""

from dataclasses import replace
from typing import Final

from croupier.core.model import enforcement as kinds
from croupier.core.model.enforcement import CardEnforcement
from croupier.core.nodes import mps_daemon
from croupier.core.nodes.mps_daemon import Act, DaemonDecision, Off, Ready, Withhold
from croupier.core.nodes.plugin_devices import NodeCard

MPS_CLIENT: Final = CardEnforcement(
    "MPSClient",
    message="the MPS daemon of the card limits its clients by their own variables, and all of them by the"
    " largest share in use",
)
MPS_DAEMON: Final = CardEnforcement(
    "MPSDaemon",
    message="the MPS daemon of the card gives each container a static partition of multiprocessors; memory is"
    " limited by the client's variable",
)
HAMI_CORE: Final = CardEnforcement(
    "HAMiCore", message="the library libvgpu.so of HAMi-core limits each container from inside"
)


def simulated(card: NodeCard) -> CardEnforcement | None:
    """For cards without a driver."""
    return kinds.SIMULATED if _is_shared(card) else None


def by_mode(card: NodeCard, hami_trouble: str) -> CardEnforcement | None:
    """For cards that have no MPS daemon and need none. `hami_trouble` is why HAMi-core cannot be used."""
    if not _is_shared(card):
        return None
    if _is_partitioned(card):
        return kinds.MIG
    sharing = card.pool.sharing if card.pool is not None else None
    if sharing is None:
        return CardEnforcement("None", ready=False, message="the driver does not tell the UUID of the card")
    if sharing.mode == "TimeSlice":
        return kinds.TIME_SLICES
    if sharing.enforcement != "HAMiCore":
        return kinds.NOT_ENFORCED
    return replace(HAMI_CORE, ready=False, failed=True, message=hami_trouble) if hami_trouble else HAMI_CORE


def with_daemon(card: NodeCard, decision: DaemonDecision, *, static: bool, owned: bool) -> CardEnforcement:
    """For cards whose shares an MPS daemon enforces, or that still have one (`owned`).

    The daemon of a card without a pool starts with the first share, so shares are offered before.
    """
    on_demand = card.pool is None
    state = replace(MPS_DAEMON if static else MPS_CLIENT, owned=owned)
    match decision:
        case Withhold(reason=reason, failed=failed):
            return replace(state, ready=on_demand and not failed, failed=failed, message=reason)
        case Ready() | Off():
            return replace(state, ready=on_demand or isinstance(decision, Ready))
        case Act(action=action):
            return replace(state, ready=on_demand, message=f"its MPS daemon is being changed: {action}")


def uses_mps(card: NodeCard) -> bool:
    """Whether shares of the card are enforced by MPS, now or with the first share."""
    return mps_daemon.is_wanted(card, None) or (card.pool is None and not _is_partitioned(card))


def _is_shared(card: NodeCard) -> bool:
    return card.pool is None or card.pool.sharing.mode != "Exclusive"


def _is_partitioned(card: NodeCard) -> bool:
    return card.gpu.mig_enabled or bool(card.gpu.slots)
