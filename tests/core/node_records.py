"""Builders and hypothesis strategies for a node's report, pods and Reservations."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from croupier.core.claims import rebuild
from croupier.core.ledger import reported_cards
from croupier.core.ledger.ledger import Ledger
from croupier.core.ledger.reported_cards import NodeCardReport, ReportedCard
from croupier.core.ledger.reservation_hold import ReservationHold
from croupier.core.model.card import CardGrant, Grant, LedgerCard, MigSlot
from croupier.core.model.card_request import CardRequest, CardShares, MigDevices
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal
from croupier.core.model.withheld import Withheld
from croupier.core.placement import placement

NODE = "node-1"
NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
NAMES = ("a", "b", "c", "d", "e")
DRAINED = Withheld("Drained", "swap the fan")


def gpu(index: int) -> str:
    return f"{NODE}-gpu-{index}"


def pci(index: int) -> str:
    return f"{NODE}-0000-{index:02x}-00-0"


def plugin_report(cards: int = 4, **mig: int) -> NodeCardReport:
    """The report of a node with the NVIDIA device plugin, such as `(2, **{"1g.10gb": 7})`."""
    slots = {f"nvidia.com/mig-{profile}": count for profile, count in mig.items()}
    return NodeCardReport(NODE, allocatable={"nvidia.com/gpu": cards, **slots})


def half_of(*cards: str, share: int = 50) -> Grant:
    return tuple(CardGrant(card, share) for card in cards)


def pod(name: str = "a", *, uid: str = "1", minutes: int = 0, **known: Any) -> PodView:
    """A bound pod that requests half a card, by default without allocation."""
    defaults = {"node": NODE, "wants": (CardShares(1, 50),), "created": NOON + timedelta(minutes=minutes)}
    return PodView(f"ns/{name}", uid, **{**defaults, **known})


HALF_OF_FIRST: Grant = half_of(gpu(0))


def reservation_hold(name: str = "a", grant: Grant = HALF_OF_FIRST, **known: Any) -> ReservationHold:
    return ReservationHold(f"rsv-{name}", f"ns/{name}", NODE, grant, **known)


def cards_of(report: NodeCardReport) -> tuple[LedgerCard, ...]:
    return reported_cards.from_report(report).cards


def rebuilt(
    *pods: PodView, report: NodeCardReport | None = None, reservation_holds: tuple[ReservationHold, ...] = ()
) -> Ledger:
    return rebuild.rebuild(report or plugin_report(), pods, reservation_holds, NOON).ledger


def by_key(*pods: PodView) -> dict[str, PodView]:
    return {view.key: view for view in pods}


WANTS: st.SearchStrategy[CardRequest] = st.one_of(
    st.builds(lambda cards, percent: (CardShares(cards, percent),), st.integers(1, 3), st.integers(1, 100)),
    st.builds(lambda count: (MigDevices("1g.10gb", count),), st.integers(1, 3)),
    st.just(()),
)


@st.composite
def reports(draw: st.DrawFn) -> NodeCardReport:
    """A report by index or from an inventory, with some unhealthy cards."""
    if draw(st.booleans()):
        return plugin_report(draw(st.integers(0, 5)), **{"1g.10gb": draw(st.integers(0, 12))})
    count = draw(st.integers(1, 5))
    devices = tuple(draw(_devices(index)) for index in range(count))
    return NodeCardReport(NODE, devices=devices, silent=draw(st.integers(0, 5)) == 0)


def _devices(index: int) -> st.SearchStrategy[ReportedCard]:
    slots = tuple(MigSlot(f"1g.10gb-{start}", "1g.10gb", start, 1) for start in range(7))
    return st.builds(
        ReportedCard,
        st.sampled_from([pci(index), pci(index), gpu(index)]),
        st.just(index),
        faulted=st.booleans(),
        unmanaged=st.booleans(),
        withheld=st.sampled_from([None, None, DRAINED, Withheld("Retired")]),
        cut=st.one_of(st.none(), st.integers(0, 7).map(lambda number: slots[:number])),
    )


GRANTS: st.SearchStrategy[Grant] = st.lists(
    st.builds(
        CardGrant,
        st.sampled_from([gpu(0), gpu(1), gpu(4), pci(0), pci(1), f"{NODE}-mig-1g.10gb-0", "unknown"]),
        st.integers(0, 100),
        st.lists(st.sampled_from(["1g.10gb-0", "1g.10gb-3"]), unique=True, max_size=2).map(tuple),
    ),
    max_size=3,
).map(tuple)


@st.composite
def pods(draw: st.DrawFn, name: str) -> PodView:
    """Arbitrary pods, including valid allocations of our Bindings."""
    return pod(
        name,
        uid=draw(st.sampled_from("12")),
        node=draw(st.sampled_from([NODE, NODE, NODE, "", "node-2"])),
        finished=draw(st.integers(0, 4)) == 0,
        wants=draw(WANTS),
        grant=draw(GRANTS),
        indexes=draw(st.sampled_from([(), (0,), (1,)])),
        minutes=draw(st.integers(0, 3)),
    )


@st.composite
def many_pods(draw: st.DrawFn) -> list[PodView]:
    return [draw(pods(name)) for name in draw(st.lists(st.sampled_from(NAMES), unique=True))]


@st.composite
def placed_pods(draw: st.DrawFn, report: NodeCardReport) -> list[PodView]:
    """Pods that were placed one after the other, with their allocations."""
    ledger = Ledger(NODE, cards_of(report))
    placed: list[PodView] = []
    for minutes, name in enumerate(NAMES):
        wants = draw(WANTS)
        grant = placement.choose(ledger, wants, "BinPack") if wants else ()
        if isinstance(grant, Refusal) or not grant:
            continue
        view = pod(name, wants=wants, grant=grant, minutes=minutes)
        ledger = rebuild.rebuild(report, [*placed, view], (), NOON).ledger
        placed.append(view)
    return placed


@st.composite
def reservation_holds(draw: st.DrawFn) -> list[ReservationHold]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=2))
    return [
        reservation_hold(name, draw(GRANTS), ttl=draw(st.sampled_from([None, 60])), since=NOON)
        for name in names
    ]
