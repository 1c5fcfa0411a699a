"""What a pod is charged is what the ledger gives it, in whatever way it asks.

The charge is computed here as the quota of the API server does it, independently of the code under test: the
requests of the containers add up, an init container counts if it is larger, sidecars count with everything
that starts after them.
"""

import copy
import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from croupier.admission import mutate
from croupier.api import convert_pod
from croupier.api.core_v1 import Pod
from croupier.core import jsonpatch
from croupier.core.availability import Availability
from croupier.core.claims import claim
from croupier.core.claims.claim import CardClaim, Granted
from croupier.core.fallbacks.policy import FallbackPolicy
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import CardMode, LedgerCard, MigSlot
from croupier.core.model.refusal import Refusal
from croupier.core.pods.request_parser import CARDS, GPU, LEDGER, MIG, PERCENT, POOL, RATIO
from croupier.core.pools import admission
from croupier.core.pools.admission import AdmissionPool, PodRequester, PoolAdmitted
from croupier.kube.client import codec

Raw = dict[str, Any]

TEAM, OTHER, SMALL = f"{POOL}team", f"{POOL}other", f"{MIG}1g.10gb"
MODES: tuple[CardMode, ...] = ("Percent", "Exclusive", "MIG", "TimeSlice")
NO_FALLBACK = FallbackPolicy(direction="off")

AMOUNTS = st.dictionaries(
    st.sampled_from([GPU, PERCENT, TEAM, TEAM, OTHER, SMALL]),
    st.sampled_from([0, 1, 2, 3, 50, 100, 150, 200]),
    max_size=2,
)
WRITTEN = st.sampled_from(["limits", "requests", "both"])
CONTAINERS = st.lists(st.tuples(AMOUNTS, WRITTEN), min_size=1, max_size=3)
INIT = st.lists(st.tuples(AMOUNTS, WRITTEN, st.booleans()), max_size=2)
NUMBERS = st.sampled_from(["1", "2", "3", "50", "100"])
ANNOTATIONS = st.dictionaries(st.sampled_from([CARDS, RATIO]), NUMBERS)
PATHS = st.sampled_from(["webhook", "webhook down"])


def container(name: str, amounts: dict[str, int], written: str, **more: str) -> Raw:
    said = {resource: str(amount) for resource, amount in amounts.items()}
    keys = ("limits", "requests") if written == "both" else (written,)
    return {"name": name, "image": "any", "resources": {key: dict(said) for key in keys}, **more}


def manifest(main: list[Any], init: list[Any], annotations: dict[str, str]) -> Raw:
    sidecar = {"restartPolicy": "Always"}
    return {
        "metadata": {"name": "pod", "namespace": "team", "uid": "u", "annotations": annotations},
        "spec": {
            "containers": [container(f"c{n}", *said) for n, said in enumerate(main)],
            "initContainers": [
                container(f"i{n}", amounts, written, **(sidecar if stays else {}))
                for n, (amounts, written, stays) in enumerate(init)
            ],
        },
    }


def defaulted(pod: Raw) -> Raw:
    """As the API server stores it: a limit without a request is also the request."""
    pod = copy.deepcopy(pod)
    for one in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
        resources = one["resources"]
        resources["requests"] = {**resources.get("limits", {}), **resources.get("requests", {})}
    return pod


def charged(pod: Raw) -> Counter[str]:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for init in pod["spec"]["initContainers"]:
        asks = _requests(init)
        if init.get("restartPolicy") == "Always":
            running += asks
            most |= running
        else:
            most |= running + asks
    for main in pod["spec"]["containers"]:
        running += _requests(main)
    return running | most


def _requests(one: Raw) -> Counter[str]:
    return Counter({name: int(amount) for name, amount in one["resources"]["requests"].items()})


def admitted(pod: Raw, mode: CardMode) -> Raw | None:
    """The pod after both webhooks; None if one of them refuses it."""
    pools = {name: AdmissionPool(name, modes=(mode,)) for name in ("team", "other")}
    answer = admission.decide(pod, PodRequester("team"), pools.get, request_id="1")
    if isinstance(answer, Refusal):
        return None
    if isinstance(answer, PoolAdmitted):
        pod = jsonpatch.apply(pod, answer.operations)
    verdict = mutate.rewrite(pod, Availability(), NO_FALLBACK)
    return jsonpatch.apply(pod, verdict.operations) if verdict.allowed else None


def policy_admits(pod: Raw) -> bool:
    """As the policy croupier-require-mark in the API server, also while the webhook is down."""
    annotated = {CARDS, RATIO} & pod["metadata"]["annotations"].keys()
    asked = (_requests(one) for one in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]))
    shares = (name for amounts in asked for name in +amounts if name == PERCENT or name.startswith(POOL))
    return not annotated or any(shares)


def cluster(mode: CardMode) -> Ledger:
    """A node with enough of everything."""
    cards = [LedgerCard(f"card-{n}", n) for n in range(12)]
    cards += [_mig(12 + n) for n in range(2)]
    for number in range(14, 32):
        pool = "team" if number < 26 else "other"
        cards.append(_mig(number, pool) if mode == "MIG" else _card(number, pool, mode))
    return Ledger("node", tuple(cards))


def _card(number: int, pool: str, mode: CardMode) -> LedgerCard:
    return LedgerCard(f"card-{number}", number, mode, capacity=64 if mode == "TimeSlice" else 100, pool=pool)


def _mig(number: int, pool: str = "") -> LedgerCard:
    slots = tuple(MigSlot(f"1g.10gb-{start}", "1g.10gb", start, 1) for start in range(7))
    return LedgerCard(f"card-{number}", number, "MIG", pool=pool, slots=slots)


def granted(pod: Raw, mode: CardMode) -> Counter[str] | None:
    """What the ledger gives, in the units of quotas; None if it refuses."""
    view = convert_pod.view(codec.decode(Pod, json.dumps(pod).encode()))
    if view.trouble or not view.wants:
        return None
    ledger = cluster(mode)
    answer = claim.decide(ledger, CardClaim(view.holder, view.wants, HoldTerms()), "BinPack")
    if not isinstance(answer, Granted):
        return None
    given: Counter[str] = Counter()
    for part in answer.grant:
        card = ledger.card(part.card)
        assert card is not None
        if card.pool:
            given[POOL + card.pool] += card.units(part)
        else:
            given["percent of cards without a pool"] += part.share
            given[SMALL] += len(part.slots)
    return +given


def in_units_of_grants(charge: Counter[str]) -> Counter[str]:
    """A whole card is 100 percent, whichever resource asked for it."""
    charge = Counter({name: count for name, count in charge.items() if name != LEDGER})
    percent = 100 * charge.pop(GPU, 0) + charge.pop(PERCENT, 0)
    return +Counter({**charge, "percent of cards without a pool": percent})


@given(CONTAINERS, INIT, ANNOTATIONS, PATHS, st.sampled_from(MODES), st.sampled_from(MODES))
def test_the_grant_is_the_charge(main, init, annotations, path, before, now):
    """Also if the webhook was down, and if the pool changed its mode after the pod was admitted."""
    pod = manifest(main, init, annotations)
    stored = admitted(pod, before) if path == "webhook" else pod
    if stored is None or not policy_admits(stored := defaulted(stored)):
        return

    given = granted(stored, now)

    assert given is None or given == in_units_of_grants(charged(stored))


@given(CONTAINERS, ANNOTATIONS, ANNOTATIONS, st.sampled_from(MODES))
def test_annotations_changed_after_creation_change_no_amount(main, before, after, mode):
    """Of a pod with a share. The policy croupier-keep-request refuses the change (test_protection.py)."""
    stored = admitted(manifest(main, [], before), mode)
    if stored is None:
        return
    stored = defaulted(stored)
    charge = in_units_of_grants(charged(stored))

    stored["metadata"]["annotations"] = after
    if not policy_admits(stored):
        return
    given = granted(stored, mode)

    assert given is None or given == charge


def test_a_pod_gets_its_cards_in_every_way_to_ask():
    """The properties above are not about refusals only."""
    asked: list[tuple[dict[str, int], dict[str, str], CardMode, dict[str, int]]] = [
        ({TEAM: 50}, {}, "Percent", {TEAM: 50}),
        ({TEAM: 100}, {CARDS: "2", RATIO: "50"}, "Percent", {TEAM: 100}),
        ({TEAM: 2}, {CARDS: "2", RATIO: "100"}, "Exclusive", {TEAM: 2}),
        ({TEAM: 3}, {}, "MIG", {TEAM: 3}),
        ({TEAM: 3}, {}, "TimeSlice", {TEAM: 3}),
        ({}, {CARDS: "2", RATIO: "50"}, "Percent", {"percent of cards without a pool": 100}),
        ({GPU: 1}, {RATIO: "50"}, "Percent", {"percent of cards without a pool": 150}),
    ]
    for amounts, annotations, mode, expected in asked:
        stored = admitted(manifest([(amounts, "limits")], [], annotations), mode)
        assert stored is not None
        assert granted(defaulted(stored), mode) == expected


def test_one_unit_of_a_percent_pool_is_never_a_whole_card():
    pod = manifest([({TEAM: 1}, "limits")], [], {CARDS: "1", RATIO: "100"})

    assert admitted(pod, "Percent") is None
    assert granted(defaulted(pod), "Percent") is None
    assert granted(defaulted(pod), "Exclusive") == {TEAM: 1}
