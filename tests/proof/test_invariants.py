"""The invariant checker finds every injected violation and accepts valid histories."""

import json
from typing import Any

import pytest

from tests.proof import facts
from tests.proof.invariants import InvariantChecker, Raw

A, B = "ml/a/uid-a", "ml/b/uid-b"
SOON = "2030-01-31T12:00:00Z"


def percent(
    name: str = "c0", *, capacity: int = 100, epoch: int = 1, a: int = 0, b: int = 0, **others: int
) -> Raw:
    """`ml_a` stands for `ml/a`."""
    named = {A: a, B: b, **{who.replace("_", "/"): share for who, share in others.items()}}
    return {
        "id": name,
        "index": int(name[1:]),
        "mode": "Percent",
        "epoch": epoch,
        "capacityPercent": capacity,
        "holders": {who: share for who, share in named.items() if share},
    }


def cut(*slots: tuple[str, int, int, str], epoch: int = 1) -> Raw:
    made = [{"id": s[0], "profile": "1g.10gb", "start": s[1], "size": s[2], "holder": s[3]} for s in slots]
    return {"id": "c0", "index": 0, "mode": "MIG", "epoch": epoch, "slots": made}


def slices(most: int, **holders: int) -> Raw:
    return {"id": "c0", "index": 0, "mode": "TimeSlice", "epoch": 1, "slices": most, "holders": holders}


def exclusive(**holders: int) -> Raw:
    return {"id": "c0", "index": 0, "mode": "Exclusive", "epoch": 1, "holders": holders}


class Story:
    """Numbered revisions of node-1 and of pods."""

    def __init__(self) -> None:
        self.judge = InvariantChecker()
        self.version = 0
        self.generation = 0

    def ledger(self, *cards: Raw, change: str = "MODIFIED", node: str = "node-1", **more: Any) -> "Story":
        self.version += 1
        self.generation += more.pop("missed", 0) + 1
        meta = {"name": node, "uid": f"u-{node}", "resourceVersion": str(self.version)}
        meta |= {"generation": more.pop("generation", self.generation)}
        summary = {"summary": more.pop("summary")} if "summary" in more else {}
        held = {name: dict.fromkeys(who, SOON) for name, who in more.items()}
        spec = {"cards": list(cards), **summary, **held}
        self.judge.ledger(change, {"metadata": meta, "spec": spec})
        return self

    def pod(
        self, holder: str, *cards: tuple[str, int], node: str = "node-1", phase: str = "Running"
    ) -> "Story":
        self.version += 1
        namespace, name, uid = holder.split("/")
        written = json.dumps([{"card": card, "index": 0, "percent": share} for card, share in cards])
        meta: Raw = {"namespace": namespace, "name": name, "uid": uid, "resourceVersion": str(self.version)}
        meta |= {"annotations": {facts.ALLOCATION: written} if cards else {}}
        spec = {"nodeName": node} if node else {}
        self.judge.pod("MODIFIED", {"metadata": meta, "spec": spec, "status": {"phase": phase}})
        return self

    def faults(self, *, pods: bool = False) -> list[str]:
        return [*self.judge.faults, *(facts.faults(self.judge.facts) if pods else [])]


def faults_of(*revisions: tuple[Raw, ...], **more: Any) -> list[str]:
    story = Story()
    for number, cards in enumerate(revisions):
        story.ledger(*cards, **(more if number == len(revisions) - 1 else {}))
    return story.faults()


FREE = (percent(),)
HALF = (percent(a=50),)

WRONGS = {
    "an overcommitted card": ([(percent(a=60, b=50),)], {}, "has 110 of 100 allocated"),
    "an overcommitted smaller card": ([(percent(capacity=50, a=60),)], {}, "has 60 of 50 allocated"),
    "more slices than there are": ([(slices(4, x=3, y=2),)], {}, "has 5 of 4 allocated"),
    "two holders of an exclusive card": ([(exclusive(x=100, y=100),)], {}, "exclusive"),
    "half an exclusive card": ([(exclusive(x=50),)], {}, "exclusive"),
    "shares of a MIG card": ([({**cut(), "holders": {A: 1}},)], {}, "has 1 of 0 allocated"),
    "slots overlap": ([(cut(("s0", 0, 2, A), ("s1", 1, 2, B)),)], {}, "overlap"),
    "a slot twice": ([(cut(("s0", 0, 1, A), ("s0", 4, 1, B)),)], {}, "a slot twice"),
    "a card twice": ([(percent(), percent())], {}, "two cards have the same id"),
    "one UID under two names": ([(percent(ml_a_u=10, ml_b_u=10),)], {}, "have the same UID"),
    "held without holding": ([FREE], {"held": [A]}, "held but holds no card"),
    "a Reservation of nothing": ([FREE], {"reservations": [A]}, "but holds no card"),
    "a grant that grows": ([FREE, HALF, (percent(a=60),)], {}, "had 50 of c0, now 60 of c0"),
    "a grant that moves": (
        [(percent(a=50), percent("c1")), (percent(), percent("c1", a=50))],
        {},
        "had 50 of c0, now 50 of c1",
    ),
    "a slot that moves": (
        [(cut(("s0", 0, 1, A), ("s1", 1, 1, "")),), (cut(("s0", 0, 1, ""), ("s1", 1, 1, A)),)],
        {},
        "had s0 of c0, now s1 of c0",
    ),
    "bound becomes held": ([HALF, HALF], {"held": [A]}, "was bound, now only held"),
    "a pod gets other cards than its Reservation": (
        [(percent(ml_a=50),), (percent(a=40),)],
        {},
        "ml/a became ml/a/uid-a",
    ),
    "an epoch goes back": ([(percent(epoch=3),), (percent(epoch=2),)], {}, "went back"),
    "a mode changes within an epoch": ([FREE, (cut(),)], {}, "without a new epoch"),
    "health changes within an epoch": ([FREE, ({**percent(), "healthy": False},)], {}, "without a new epoch"),
    "a card with a holder is removed": (
        [(percent(), percent("c1", a=50)), (percent(),)],
        {},
        "was removed while it had holders",
    ),
    "a summary of fewer holders": (
        [HALF],
        {"summary": {"cards": 1, "holders": 0, "free": {"cards": 0, "percent": 50}}},
        "the cards amount to {'cards': 1, 'holders': 1",
    ),
    "a summary of more free percent": (
        [HALF],
        {"summary": {"cards": 1, "holders": 1, "free": {"cards": 0, "percent": 60}}},
        "'percent': 50}",
    ),
    "a summary with the free slots of another profile": (
        [(cut(("s0", 0, 1, A), ("s1", 1, 1, "")),)],
        {"summary": {"cards": 1, "holders": 1, "free": {"slots": {"2g.20gb": 1}}}},
        "{'slots': {'1g.10gb': 1}}",
    ),
    "a revision is missing": ([FREE, HALF], {"missed": 1}, "GAP"),
    "the beginning is missing": ([FREE], {"generation": 7}, "GAP"),
    "a ledger deleted with holders": ([HALF, HALF], {"change": "DELETED"}, "deleted while"),
}


@pytest.mark.parametrize(("revisions", "more", "named"), WRONGS.values(), ids=WRONGS)
def test_an_injected_violation_is_found(revisions, more, named):
    violations = faults_of(*revisions, **more)

    assert len(violations) >= 1
    assert any(named in fault for fault in violations), violations


def test_a_valid_history_has_no_violations():
    story = (
        Story()
        .ledger(percent(), percent("c1"))
        .ledger(percent(a=50), percent("c1", a=50), held=[A])
        .pod(A, ("c0", 50), ("c1", 50))
        .ledger(percent(a=50, b=50), percent("c1", a=50), held=[B])
        .pod(B, ("c0", 50))
        .ledger(percent(a=50, b=50), percent("c1", a=50))
        .ledger(percent(a=50, b=50, capacity=100), percent("c1", a=50), generation=5)
        .pod(A, ("c0", 50), ("c1", 50), phase="Succeeded")
        .ledger(percent(b=50), percent("c1"), generation=6)
    )

    assert story.faults(pods=True) == []
    assert story.judge.pods == {"uid-b": "node-1"}


def test_a_pod_takes_over_its_reservation():
    story = (
        Story()
        .ledger(percent())
        .ledger(percent(ml_a=50), held=["ml/a"], reservations=["ml/a"])
        .ledger(percent(a=50), held=[A], reservations=[A])
        .pod(A, ("c0", 50))
        .ledger(percent(a=50), reservations=[A])
    )

    assert story.faults(pods=True) == []


def test_a_binding_without_a_hold_is_found():
    assert "without a reservation" in Story().ledger(percent()).pod(A, ("c0", 50)).faults(pods=True)[0]


def test_a_binding_without_an_allocation_is_found():
    story = Story().ledger(percent()).ledger(percent(a=50), held=[A]).pod(A)

    assert "without an allocation" in story.faults(pods=True)[0]


def test_a_binding_that_differs_from_the_ledger_is_found():
    story = Story().ledger(percent()).ledger(percent(a=50), held=[A]).pod(A, ("c0", 40))

    assert "an allocation that differs" in story.faults(pods=True)[0]


def test_capacity_released_under_a_bound_pod_is_found():
    story = Story().ledger(percent(a=50), held=[A]).pod(A, ("c0", 50)).ledger(percent())

    assert "lost what it holds" in story.faults(pods=True)[0]


def test_a_late_binding_after_its_hold_was_reassigned_is_found():
    """The effect of a binding without a fence: the ledger is always valid, but the card is overcommitted."""
    story = (
        Story()
        .ledger(percent(a=80), held=[A])
        .ledger(percent(b=80), held=[B])
        .pod(B, ("c0", 80))
        .pod(A, ("c0", 80))
    )

    violations = story.faults(pods=True)
    assert story.faults() == []
    assert any("pods have 160 of card c0, which has 100" in fault for fault in violations), violations


def test_a_holder_bound_before_its_pod_is_found():
    story = Story().ledger(percent(a=50))

    assert "but no such pod was bound there" in story.faults(pods=True)[0]


def test_one_pod_bound_on_two_nodes_is_found():
    story = (
        Story()
        .ledger(percent(a=50), held=[A])
        .pod(A, ("c0", 50))
        .ledger(percent(a=50))
        .ledger(percent(a=50), node="node-2", generation=1)
    )

    assert any("is bound on node-2 and on node-1" in fault for fault in story.faults(pods=True))
