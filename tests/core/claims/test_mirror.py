"""Mirrors show what placed pods hold, and nothing else."""

from dataclasses import replace
from datetime import timedelta

import pytest

from croupier.core.claims import mirror
from croupier.core.claims.mirror import (
    CreateMirror,
    DeleteMirror,
    ExistingMirror,
    PlacementMirror,
    ReportMirror,
    UnmarkMirror,
)
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import CardGrant
from tests.core import ledger_builders as build
from tests.core.ledger_builders import NOON

KEEP = timedelta(minutes=10)
POD = PlacementMirror("team/train", "0a1b2c3d-4e5f", "node-1", (CardGrant("card-0", 50),))


def test_every_pod_without_a_reservation_is_shown():
    ledger = Ledger(
        "node-1",
        (
            build.shared(0, 25, 50),
            build.time_sliced(1, 1, slices=3),
            build.mig(2, "mixed", taken=(0,)),
        ),
        reservations={build.other_holder(0, 1): "theirs"},
    )
    shown = {placed.pod: [part.share for part in placed.cards] for placed in mirror.placements(ledger)}

    assert shown == {"other/pod-0-0": [25], "other/pod-1-0": [34], "other/pod-2-0": [43]}


def test_a_reservation_without_a_pod_is_not_shown():
    card = build.shared(0)
    waiting = Ledger("node-1", (replace(card, holders={"team/later": 50}),))

    assert mirror.placements(waiting) == ()


def test_names_are_valid_and_differ_for_pods_of_one_name():
    long = PlacementMirror(f"team/{'a' * 243}-{'b' * 9}", "0a1b2c3d-4e5f", "node-1", ())

    assert POD.name == "train-0a1b2c3d"
    assert len(long.name) <= 253
    assert long.name.endswith("a-0a1b2c3d")


CASES = {
    "a new pod": ([POD], [], KEEP, [CreateMirror(POD)], None),
    "a shown pod": (
        [POD],
        [ExistingMirror(POD.key, "Reserved")],
        KEEP,
        [ReportMirror(POD.key, POD.outcome)],
        None,
    ),
    "an ended pod": (
        [],
        [ExistingMirror(POD.key, "Reserved", NOON)],
        KEEP,
        [ReportMirror(POD.key, mirror.ENDED)],
        600,
    ),
    "a released mirror waits": (
        [],
        [ExistingMirror(POD.key, "Released", NOON - timedelta(minutes=4))],
        KEEP,
        [],
        360,
    ),
    "a released mirror is deleted": (
        [],
        [ExistingMirror(POD.key, "Released", NOON - KEEP)],
        KEEP,
        [DeleteMirror(POD.key)],
        None,
    ),
    "mirrors are off": (
        [],
        [ExistingMirror(POD.key, "Reserved", NOON)],
        timedelta(),
        [DeleteMirror(POD.key)],
        None,
    ),
    "a Reservation that holds cards was marked": (
        [],
        [ExistingMirror(POD.key, "Reserved", NOON, has_finalizer=True)],
        KEEP,
        [UnmarkMirror(POD.key)],
        None,
    ),
}


@pytest.mark.parametrize(("placed", "existing", "keep", "steps", "again"), CASES.values(), ids=CASES)
def test_steps(placed, existing, keep, steps, again):
    plan = mirror.plan(placed, {found.key: found for found in existing}, NOON, keep=keep)

    assert list(plan.steps) == steps
    assert plan.again_after == again
