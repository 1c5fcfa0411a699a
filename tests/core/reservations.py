"""Builders for Reservations, pods and the ledger of one node."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from croupier.core.ledgers import ledger as ledger_ops
from croupier.core.ledgers import reservation, verdict
from croupier.core.ledgers.ledger import Card, Ledger, Part, Terms
from croupier.core.ledgers.reservation import Asked, Outcome, Scene, Told
from croupier.core.pods.pod import PodView
from croupier.core.pods.want import Shares

NOON = datetime(2030, 1, 31, 12, 0, 0, tzinfo=UTC)
NODE = "node-1"
UID = "uid-1"
POD = "default/my-pod"
UNTOLD = Told()
HOLDER = f"{POD}/{UID}"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def cards(count: int = 2, node: str = NODE) -> Ledger:
    return Ledger(node, tuple(Card(f"{node}-{index}", index) for index in range(count)))


def rsv(
    name: str = "mine",
    cards: int = 2,
    percent: int = 50,
    *,
    pod: str = POD,
    namespace: str = "default",
    ttl: int | None = None,
    priority: int = 0,
    age: float = 0,
    deleted: bool = False,
    guarded: bool = True,
    told: Told = UNTOLD,
) -> Asked:
    return Asked(
        namespace=namespace,
        name=name,
        pod=pod,
        want=Shares(cards, percent),
        created=at(-age),
        priority=priority,
        ttl=ttl,
        deleted=deleted,
        guarded=guarded,
        told=told,
    )


def runs(pod: str = POD, uid: str = UID, node: str = NODE, *, finished: bool = False) -> PodView:
    return PodView(pod, uid, node=node, finished=finished)


def waits(pod: str = POD, uid: str = UID) -> PodView:
    return PodView(pod, uid)


def holds(
    ledger: Ledger, holder: str, percent: int = 50, *, cards: int = 2, terms: Terms | None = None
) -> Ledger:
    grant = tuple(Part(card.id, percent) for card in ledger.cards[:cards])
    given = ledger_ops.give(ledger, holder, grant, terms or Terms(bound=True))
    assert isinstance(given, Ledger), given
    return given


def by(name: str = "mine", until: datetime | None = None, *, bound: bool = False) -> Terms:
    return Terms(bound=bound, until=until, reservation=name)


def scene(*asked: Asked, pods: tuple[PodView, ...] = (), seconds: float = 0, node: str = NODE) -> Scene:
    return Scene(node, at(seconds), asked, {pod.key: pod for pod in pods})


def after(
    ledger: Ledger | None,
    what: Scene,
    elsewhere: tuple[Ledger, ...] = (),
    *,
    gone: tuple[str, ...] = (),
    exists: bool = True,
) -> tuple[Ledger | None, dict[str, Outcome], verdict.Judgement]:
    """The ledger and the outcomes by Reservation name; `gone` are holders whose pod is deleted."""
    what = looked_at(ledger, replace(what, exists=exists), gone)
    settled = None if ledger is None else reservation.settle(ledger, what, "BinPack")
    judged = verdict.judge(settled, what, {other.node: other for other in elsewhere}, "BinPack")
    return settled, {key.partition("/")[2]: outcome for key, outcome in judged.outcomes.items()}, judged


def looked_at(ledger: Ledger | None, what: Scene, gone: tuple[str, ...] = ()) -> Scene:
    """The inputs with the holders whose pods have ended."""
    over, unseen = reservation.endings(ledger, what.pods)
    over |= frozenset(gone) & frozenset(unseen)
    departed = reservation.departed(ledger, over, what)
    return replace(what, over=over, departed=departed)
