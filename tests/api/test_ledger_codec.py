"""Ledgers round-trip through the wire form."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from croupier.api import kinds
from croupier.api.mps import NodeReservation, ledger_codec
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard, MigSlot
from croupier.core.model.withheld import Withheld
from tests.api.scenario_tables import EXAMPLES
from tests.proof import invariants

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)

names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
holders = st.builds("{}/{}/{}".format, names, names, st.uuids())
moments = st.integers(0, 10**6).map(lambda seconds: NOON + timedelta(seconds=seconds))


def shared(mode: Any, most: int) -> st.SearchStrategy[dict[str, Any]]:
    """A card with holders within its capacity."""
    share = st.just(100) if mode == "Exclusive" else st.integers(1, most // 8)
    count = 1 if mode == "Exclusive" else 8
    return st.fixed_dictionaries(
        {"mode": st.just(mode), "holders": st.dictionaries(holders, share, max_size=count)}
    ) | st.fixed_dictionaries({"mode": st.just(mode), "capacity": st.just(most)})


@st.composite
def cut(draw: st.DrawFn) -> dict[str, Any]:
    taken = draw(st.lists(st.just("") | holders, max_size=7))
    slots = tuple(MigSlot(f"1g.10gb-{at}", "1g.10gb", at, 1, holder) for at, holder in enumerate(taken))
    return {"mode": "MIG", "slots": slots}


reasons = st.none() | st.builds(
    Withheld, st.sampled_from(["Drained", "Retired", "Changing", "Unhealthy"]), st.text(max_size=200)
)


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    kinds_of_cards = st.one_of(
        shared("Percent", 100), shared("TimeSlice", 64), shared("Exclusive", 100), cut()
    )
    cards = tuple(
        LedgerCard(
            f"node-gpu-{index}",
            index,
            epoch=draw(st.integers(0, 2**53)),
            healthy=draw(st.booleans()),
            withheld=draw(reasons),
            pool=draw(st.just("") | names),
            **({"capacity": 64} if shape["mode"] == "TimeSlice" else {}) | shape,
        )
        for index, shape in enumerate(draw(st.lists(kinds_of_cards, max_size=4)))
    )
    everyone = sorted(Ledger("node", cards).holders())
    if not everyone:
        return Ledger("node", cards)
    some = st.sampled_from(everyone)
    held = draw(st.dictionaries(some, st.none() | moments, max_size=4))
    return Ledger("node", cards, held, draw(st.dictionaries(some, names, max_size=4)))


@given(ledgers())
def test_a_ledger_round_trips_also_through_json(ledger):
    sent = msgspec.json.encode(NodeReservation(spec=ledger_codec.encode(ledger)))

    assert ledger_codec.decode("node", ledger_codec.encode(ledger)) == ledger
    assert ledger_codec.decode("node", msgspec.json.decode(sent, type=NodeReservation).spec) == ledger


@given(ledgers())
def test_the_summary_is_what_a_reader_counts_in_the_object(ledger):
    body = msgspec.to_builtins(ledger_codec.encode(ledger))
    meta = {"name": "node", "uid": "u", "resourceVersion": "1", "generation": 1}

    revision = invariants.read({"metadata": meta, "spec": body})

    assert revision.summary == invariants.counted(revision)


def test_the_examples_round_trip():
    for name in ("percent", "mig", "timeslice", "exclusive"):
        spec = msgspec.convert(EXAMPLES[f"nodereservation-{name}"], NodeReservation).spec

        assert ledger_codec.encode(ledger_codec.decode("node", spec)) == spec


def test_expiries_are_rounded_up():
    late = NOON + timedelta(microseconds=1)

    assert ledger_codec.round_up(late) == NOON + timedelta(seconds=1)
    assert ledger_codec.encode_expiry(late) == "2030-01-31T12:00:01Z"
    assert ledger_codec.encode_expiry(NOON) == "2030-01-31T12:00:00Z"
    assert ledger_codec.encode_expiry(None) == "never"


def test_an_impossible_date_means_never():
    card = ledger_codec.encode(Ledger("node", (LedgerCard("gpu-0", 0, holders={"a/b": 1}),)))
    spec = msgspec.structs.replace(card, held={"a/b": "2030-02-30T12:00:00Z"})

    assert ledger_codec.decode("node", spec).held == {"a/b": None}


async def test_the_api_server_accepts_and_keeps_every_mode_of_card(api, crds, clean_cluster):
    mig = (MigSlot("1g.10gb-0", "1g.10gb", 0, 1, "a/mig/u-1"), MigSlot("3g.40gb-4", "3g.40gb", 4, 4))
    ledger = Ledger(
        "every-sort",
        (
            LedgerCard("g-0", 0, holders={"a/shared/u-2": 50, "a/waiting": 30}, pool="train"),
            LedgerCard("g-1", 1, "Exclusive", holders={"a/whole/u-3": 100}),
            LedgerCard("g-2", 2, "MIG", slots=mig, epoch=7),
            LedgerCard("g-3", 3, "MIG", healthy=False),
            LedgerCard("g-4", 4, "TimeSlice", capacity=8, holders={"a/sliced/u-4": 3}),
        ),
        {"a/waiting": None, "a/sliced/u-4": NOON},
        {"a/waiting": "example"},
    )
    body = {"metadata": {"name": "every-sort"}, "spec": msgspec.to_builtins(ledger_codec.encode(ledger))}

    created = await api.create(kinds.NODE_RESERVATIONS, body)

    assert ledger_codec.decode("every-sort", created.spec) == ledger
