"""Which pod the kubelet asks for, which devices it should allocate, and the environment of the container.

The main property: in any order of admission no part of a card is allocated twice, and grants can be changed
to the actual devices.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.model.card import CardGrant
from croupier.core.model.enforcement import CardEnforcement
from croupier.core.model.refusal import Refusal
from croupier.core.model.sharing import Sharing
from croupier.core.nodes import allocation_check, device_allocation, kubelet_assignments, plugin_devices
from croupier.core.nodes.device_allocation import (
    AllocationInputs,
    ContainerAllocation,
    PastAllocation,
    PreferenceRequest,
)
from croupier.core.nodes.kubelet_assignments import BoundPod, ContainerRequest, KubeletAssignment
from croupier.core.nodes.plugin_devices import NodeCard, PoolMembership
from tests.core.kubelet_env import (
    GPU,
    MEDIUM,
    PERCENT,
    POOL,
    kubelet_env,
    name,
    partitioned,
    pod,
    pooled,
    share,
    slots,
    whole,
)

BLUE = f"{POOL}blue"
SLOT = "nvidia.com/mig-1g.10gb"

PROMISES = {
    "a card": ([whole(0), whole(1)], pod("a", {GPU: 1}, share(1)), {name(1): 1}),
    "a card named by its index": (
        [whole(0), whole(1)],
        pod("a", {GPU: 1}, CardGrant("node-1-gpu-1", 100)),
        {name(1): 1},
    ),
    "two cards": (
        [whole(n) for n in range(4)],
        pod("a", {GPU: 2}, share(1), share(3)),
        {name(1): 1, name(3): 1},
    ),
    "half a card": ([whole(0), whole(1)], pod("a", {PERCENT: 50}, share(1, 50)), {name(1): 50}),
    "half of two cards": (
        [whole(n) for n in range(3)],
        pod("a", {PERCENT: 100}, share(0, 50), share(2, 50)),
        {name(0): 50, name(2): 50},
    ),
    "a card and a share": (
        [whole(n) for n in range(3)],
        pod("a", {GPU: 1, PERCENT: 30}, share(2), share(1, 30)),
        {name(2): 1, name(1): 30},
    ),
    "a card and a share that is a whole card": (
        [whole(n) for n in range(3)],
        pod("a", {GPU: 1, PERCENT: 100}, share(1), share(2)),
        {name(1): 1, name(2): 100},
    ),
    "a slot": ([partitioned(0), partitioned(1)], pod("a", {SLOT: 1}, slots(1, "1g.10gb-3")), {name(1): 1}),
    "slots of two profiles": (
        [partitioned(0, MEDIUM), partitioned(1)],
        pod("a", {SLOT: 1, "nvidia.com/mig-2g.20gb": 1}, slots(0, "2g.20gb-2"), slots(1, "1g.10gb-6")),
        {name(0): 1, name(1): 1},
    ),
    "slices of a pool": (
        [pooled(0, "TimeSlice"), pooled(1, "TimeSlice")],
        pod("a", {BLUE: 3}, share(0, 1), share(1, 2)),
        {name(0): 1, name(1): 2},
    ),
    "percent of a pool": ([pooled(0), pooled(1)], pod("a", {BLUE: 40}, share(1, 40)), {name(1): 40}),
    "a card of a pool": (
        [pooled(0, "Exclusive"), pooled(1, "Exclusive")],
        pod("a", {BLUE: 1}, share(1)),
        {name(1): 1},
    ),
}


@pytest.mark.parametrize(("cards", "asking", "expected"), PROMISES.values(), ids=PROMISES)
def test_a_pod_gets_the_granted_devices(cards, asking, expected):
    node = kubelet_env(cards, asking)

    assert not any(isinstance(answer, Refusal) for answer in node.admit(asking))

    assert node.cards_of(asking) == expected
    assert allocation_check.compare(node.pods, node.holdings(), node.offer.cards) == ()


def two(first: dict[str, int], second: dict[str, int], **init: int) -> tuple[ContainerRequest, ...]:
    early = (ContainerRequest("init", {PERCENT: init["init"]}),) if init else ()
    return (*early, ContainerRequest("one", first), ContainerRequest("other", second))


CONTAINERS = {
    "each its own card": (two({GPU: 1}, {GPU: 1}), {GPU: 2}, (share(0), share(2)), {name(0): 1, name(2): 1}),
    "each a part of one share": (
        two({PERCENT: 30}, {PERCENT: 20}),
        {PERCENT: 50},
        (share(1, 50),),
        {name(1): 50},
    ),
    "each a share of its own": (
        two({PERCENT: 30}, {PERCENT: 20}),
        {PERCENT: 50},
        (share(0, 30), share(1, 20)),
        {name(0): 30, name(1): 20},
    ),
    "devices of the init container are reused": (
        two({PERCENT: 30}, {PERCENT: 20}, init=40),
        {PERCENT: 50},
        (share(1, 50),),
        {name(1): 50 + 40},  # includes the devices of the init container
    ),
}


@pytest.mark.parametrize(("containers", "wants", "grant", "expected"), CONTAINERS.values(), ids=CONTAINERS)
def test_containers_share_the_grant_of_their_pod(containers, wants, grant, expected):
    asking = pod("a", {}, *grant, containers=containers, wants=wants)
    node = kubelet_env([whole(n) for n in range(3)], asking)

    node.admit(asking)

    assert node.cards_of(asking) == expected
    assert kubelet_assignments.is_within(
        kubelet_assignments.parts({id for ids in node.has.values() for id in ids}), grant
    )


def asked(size: int, resource: str = GPU, many: int = 3) -> PreferenceRequest:
    offer = plugin_devices.served_resources([whole(n) for n in range(many)])
    return PreferenceRequest(resource, size, tuple(one.id for one in offer.resources[resource]))


A, B = pod("a", {GPU: 1}, share(1)), pod("b", {GPU: 1}, share(2))
HELD = KubeletAssignment("team/a", "main", GPU, (name(1),))

WHO = {
    "the pod that was bound first": (
        asked(1),
        AllocationInputs(plugin_devices.ServedResources(), (A, B)),
        "team/a",
    ),
    "not a pod with devices by the kubelet": (
        asked(1),
        AllocationInputs(plugin_devices.ServedResources(), (A, B), (HELD,)),
        "team/b",
    ),
    "not a pod with devices by our records": (
        asked(1),
        AllocationInputs(
            plugin_devices.ServedResources(),
            (A, B),
            (),
            (PastAllocation("team/a", "uid-a", "main", GPU, (name(1),)),),
        ),
        "team/b",
    ),
    "not a served pod without a grant": (
        asked(1),
        AllocationInputs(plugin_devices.ServedResources(), (pod("a", {GPU: 1}), B), (HELD,)),
        "team/b",
    ),
    "not a running pod": (
        asked(1),
        AllocationInputs(plugin_devices.ServedResources(), (replace(A, admitted=True), B)),
        "team/b",
    ),
    "a running pod, if there is no other": (
        asked(1),
        AllocationInputs(plugin_devices.ServedResources(), (replace(A, admitted=True),)),
        "team/a",
    ),
    "only a pod that requests this number": (
        asked(2),
        AllocationInputs(plugin_devices.ServedResources(), (A, pod("c", {GPU: 2}))),
        "team/c",
    ),
    "only a pod that requests this resource": (
        asked(1),
        AllocationInputs(plugin_devices.ServedResources(), (pod("c", {PERCENT: 1}), B)),
        "team/b",
    ),
    "no pod": (asked(2), AllocationInputs(plugin_devices.ServedResources(), (A, B)), None),
    "a pod that replaces one of the same name": (
        asked(1),
        AllocationInputs(
            plugin_devices.ServedResources(),
            (A,),
            (HELD,),
            (PastAllocation("team/a", "uid-before", "main", GPU, (name(1),)),),
        ),
        "team/a",
    ),
    "a pod that was mistaken for another": (
        asked(1),
        AllocationInputs(
            plugin_devices.ServedResources(),
            (A, B),
            (replace(HELD, pod="team/b"),),
            (PastAllocation("team/a", "uid-a", "main", GPU, (name(1),)),),
        ),
        "team/a",
    ),
}


@pytest.mark.parametrize(("question", "scene", "who"), WHO.values(), ids=WHO)
def test_the_pod_of_a_preference_request(question, scene, who):
    scene = replace(scene, offer=plugin_devices.served_resources([whole(n) for n in range(3)]))

    found = device_allocation.preferred(question, scene)

    assert (found.pod.key if found.pod is not None else None) == who


def test_a_pod_without_a_grant_gets_ungranted_devices():
    stranger = pod("stranger", {PERCENT: 60})
    waiting = pod("waiting", {GPU: 1}, share(0))
    runs = pod("runs", {PERCENT: 50}, share(1, 50))
    node = kubelet_env([whole(n) for n in range(3)], runs, stranger, waiting)

    node.admit(runs)
    node.admit(stranger)

    assert node.cards_of(stranger) == {name(2): 60}


def test_a_pod_with_an_unhealthy_card_gets_another():
    asking = pod("a", {PERCENT: 50}, share(0, 50))
    node = kubelet_env([whole(0, healthy=False), whole(1)], asking)

    node.admit(asking)

    assert node.cards_of(asking) == {name(1): 50}


def test_a_pod_whose_granted_card_is_taken_gets_a_free_card():
    mistaken = pod("mistaken", {GPU: 1}, share(1))
    late = pod("late", {PERCENT: 50}, share(0, 50))
    node = kubelet_env([whole(0), whole(1)], mistaken)
    node.has["team/mistaken", "main", GPU] = (name(0),)
    node.pods.append(late)

    node.admit(late)

    assert node.cards_of(late) == {name(1): 50}
    wrong = allocation_check.compare(node.pods, node.holdings(), node.offer.cards)
    assert [(one.pod.key, one.can_move) for one in wrong] == [("team/mistaken", True), ("team/late", True)]


OTHERWISE = {
    "as preferred": ((name(1),), (A, B), "team/a"),
    "devices granted to another pod": ((name(2),), (A, B), "team/b"),
    "devices without a grant": ((name(0),), (A, B), "team/a"),
    "devices granted to a running pod": ((name(2),), (A, replace(B, admitted=True)), "team/a"),
}


@pytest.mark.parametrize(("ids", "pods", "who"), OTHERWISE.values(), ids=OTHERWISE)
def test_the_pod_of_devices_that_the_kubelet_chose_itself(ids, pods, who):
    scene = AllocationInputs(plugin_devices.served_resources([whole(n) for n in range(3)]), pods)
    begun = device_allocation.preferred(asked(1), scene)

    found = device_allocation.infer_owner(GPU, ids, scene, begun)

    assert found is not None
    assert found.pod is not None
    assert (found.pod.key, found.container, found.ids) == (who, "main", ids)
    assert begun.ids == (name(1),)


REFUSED = {
    "a card that is gone": ([whole(1)], GPU, [name(0)], "the card is gone"),
    "a card that is being repartitioned": (
        [whole(0, changing=True)],
        GPU,
        [name(0)],
        "the card is being repartitioned",
    ),
    "a card that went to a pool": ([pooled(0)], GPU, [name(0)], f"the card no longer serves {GPU}"),
    "a slot that is gone": (
        [partitioned(0, MEDIUM)],
        SLOT,
        [f"{name(0)}::1g.10gb-0"],
        f"the card no longer serves {SLOT}",
    ),
    "an unhealthy card": ([whole(0, healthy=False)], GPU, [name(0)], "the card is not healthy"),
    "units of several cards": (
        [whole(0), whole(1)],
        PERCENT,
        [f"{name(0)}::p00", f"{name(0)}::p01", f"{name(1)}::p00"],
        "the kubelet mixed units of several cards; a share must be of one card, or equal on every card",
    ),
}


@pytest.mark.parametrize(("cards", "resource", "ids", "why"), REFUSED.values(), ids=REFUSED)
def test_unavailable_devices_are_refused_with_a_sentence(cards, resource, ids, why):
    answer = device_allocation.allocate(
        resource, ids, AllocationInputs(plugin_devices.served_resources(cards)), None
    )

    assert isinstance(answer, Refusal)
    assert answer.reason == why


BUSY = {
    "whole, while a pod has a share": (PERCENT, (f"{name(0)}::p00",), GPU, [name(0)]),
    "a share, while a pod has the whole card": (GPU, (name(0),), PERCENT, [f"{name(0)}::p00"]),
    "the same card again": (GPU, (name(0),), GPU, [name(0)]),
}


@pytest.mark.parametrize(("theirs", "has", "resource", "ids"), BUSY.values(), ids=BUSY)
def test_a_card_of_another_pod_is_refused(theirs, has, resource, ids):
    scene = AllocationInputs(
        plugin_devices.served_resources([whole(0)]),
        (),
        (KubeletAssignment("team/owner", "main", theirs, has),),
    )

    answer = device_allocation.allocate(resource, ids, scene, None)

    assert answer == Refusal("pod team/owner has the card or was granted it", name(0))


def test_a_granted_card_is_refused_to_a_pod_without_a_grant():
    owner, stranger = pod("owner", {GPU: 1}, share(0)), pod("stranger", {PERCENT: 100})
    node = kubelet_env([whole(0)], stranger, owner)

    (refused,) = node.admit(stranger)
    (answer,) = node.admit(owner)

    assert refused == Refusal("pod team/owner has the card or was granted it", name(0))
    assert isinstance(answer, ContainerAllocation)


def percents(index: int, many: int) -> list[str]:
    return [f"{name(index)}::p{n:02}" for n in range(many)]


TOLD = {
    "a card": ([whole(0)], GPU, [name(0)], {"NVIDIA_VISIBLE_DEVICES": "GPU-0", "CROUPIER_CARDS": name(0)}),
    "cards in their order": (
        [whole(0), whole(1)],
        GPU,
        [name(1), name(0)],
        {"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1", "CROUPIER_CARDS": f"{name(0)},{name(1)}"},
    ),
    "a share": (
        [whole(0)],
        PERCENT,
        percents(0, 50),
        {
            "NVIDIA_VISIBLE_DEVICES": "GPU-0",
            "CROUPIER_CARDS": name(0),
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=40000M",
        },
    ),
    "a share of two cards of a pool, one smaller": (
        [pooled(3), pooled(5, memory_mib=40001)],
        BLUE,
        [*percents(3, 25), *percents(5, 25)],
        {
            "NVIDIA_VISIBLE_DEVICES": "GPU-3,GPU-5",
            "CROUPIER_CARDS": f"{name(3)},{name(5)}",
            "CROUPIER_POOL": "blue",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20000M,1=10000M",
        },
    ),
    "slots": (
        [partitioned(0)],
        SLOT,
        [f"{name(0)}::1g.10gb-1", f"{name(0)}::1g.10gb-0"],
        {"NVIDIA_VISIBLE_DEVICES": "MIG-0-1g.10gb-0,MIG-0-1g.10gb-1", "CROUPIER_CARDS": name(0)},
    ),
    "slices": (
        [pooled(0, "TimeSlice")],
        BLUE,
        [f"{name(0)}::s0", f"{name(0)}::s7"],
        {"NVIDIA_VISIBLE_DEVICES": "GPU-0", "CROUPIER_CARDS": name(0), "CROUPIER_POOL": "blue"},
    ),
}


@pytest.mark.parametrize(("cards", "resource", "ids", "env"), TOLD.values(), ids=TOLD)
def test_the_environment_of_a_container(cards, resource, ids, env):
    answer = device_allocation.allocate(
        resource, ids, AllocationInputs(plugin_devices.served_resources(cards)), None
    )

    assert isinstance(answer, ContainerAllocation)
    assert answer.env == env


@st.composite
def worlds(draw):
    """Pods with grants that a ledger could have made: no part of a card twice."""
    cards: list[NodeCard] = []
    pods: list[BoundPod] = []
    for n in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["whole", "percent", "cut", "slices", "pooled", "exclusive"]))
        cards.append(
            {
                "cut": lambda n=n: partitioned(n),
                "slices": lambda n=n: pooled(n, "TimeSlice", "red"),
                "pooled": lambda n=n: pooled(n, "MPS", "green"),
                "exclusive": lambda n=n: pooled(n, "Exclusive", "gold"),
            }.get(kind, lambda n=n: whole(n))()
        )
        for asks, part in draw(_shares(n, kind)):
            pods.append(pod(f"p{len(pods)}", asks, part))
    if len(pods) > 1 and draw(st.booleans()):
        pods = [*_merged_pods(pods[0], pods[1]), *pods[2:]]
    return cards, draw(st.permutations(pods)), draw(st.permutations(range(len(pods))))


def _merged_pods(one: BoundPod, other: BoundPod) -> list[BoundPod]:
    """One pod with the containers of both, if that is allowed."""
    if one.wants.keys() == other.wants.keys() and all(r.startswith(POOL) or r == GPU for r in one.wants):
        wants = {r: one.wants[r] + other.wants[r] for r in one.wants}
    elif one.wants.keys() & other.wants.keys() or PERCENT in {*one.wants, *other.wants}:
        return [one, other]
    else:
        wants = {**one.wants, **other.wants}
    containers = (replace(one.containers[0], name="one"), replace(other.containers[0], name="other"))
    grant = kubelet_assignments.merged([one.grant, other.grant])
    return [replace(one, containers=containers, wants=wants, grant=grant)]


def _shares(n: int, kind: str):
    if kind in ("whole", "exclusive"):
        resource = GPU if kind == "whole" else f"{POOL}gold"
        return st.lists(st.just(({resource: 1}, share(n))), max_size=1)
    if kind == "cut":
        ids = st.lists(st.sampled_from(range(7)), unique=True, max_size=4)
        return ids.map(lambda found: [({SLOT: 1}, slots(n, f"1g.10gb-{start}")) for start in found])
    resource, capacity = {
        "percent": (PERCENT, 100),
        "slices": (f"{POOL}red", 8),
        "pooled": (f"{POOL}green", 100),
    }[kind]
    sizes = st.lists(st.sampled_from([1, 3, capacity // 4, capacity // 2, capacity]), max_size=4)
    fitting = sizes.filter(lambda found: sum(found) <= capacity)
    return fitting.map(lambda found: [({resource: size}, CardGrant(name(n), size)) for size in found])


@given(worlds())
def test_pods_admitted_in_the_order_of_binding_get_their_grants(world):
    cards, pods, _ = world
    node = kubelet_env(cards, *pods)

    for one in pods:
        assert not any(isinstance(answer, Refusal) for answer in node.admit(one))

    for one in pods:
        got = {id for (key, _, _), ids in node.has.items() if key == one.key for id in ids}
        assert kubelet_assignments.is_within(kubelet_assignments.parts(got), one.grant)


@given(worlds())
def test_in_any_order_no_device_is_allocated_twice_and_grants_can_move(world):
    cards, pods, order = world
    node = kubelet_env(cards, *pods)

    for number in order:
        assert not any(isinstance(answer, Refusal) for answer in node.admit(pods[number]))

    ids = [id for ids in node.has.values() for id in ids]
    assert len(ids) == len(set(ids))
    mismatches = allocation_check.compare(pods, node.holdings(), node.offer.cards)
    assert all(mismatch.can_move for mismatch in mismatches)
    moved = {mismatch.pod.key: mismatch.actual for mismatch in mismatches}
    after = [replace(one, grant=moved.get(one.key, one.grant)) for one in pods]
    assert allocation_check.compare(after, node.holdings(), node.offer.cards) == ()
    for one in after:
        others = {other.key: other.grant for other in after if other is not one}
        assert not list(kubelet_assignments.conflicts(one.grant, others, node.offer.cards))


@given(worlds(), st.data())
def test_whatever_the_kubelet_picks_no_card_is_overcommitted(world, data):
    """The kubelet ignores every preference and picks at random; accepted devices never overcommit a card."""
    cards, pods, _ = world
    node = kubelet_env(cards)
    for one in pods:
        for container in one.containers:
            for resource, size in container.counts.items():
                available = node.available(resource)
                if len(available) >= size:
                    ids = tuple(data.draw(st.permutations(available)))[:size]
                    if isinstance(
                        device_allocation.allocate(resource, ids, node.scene(), None), ContainerAllocation
                    ):
                        node.has[one.key, container.name, resource] = ids

    for card in cards:
        on_it = [
            id for ids in node.has.values() for id in ids if plugin_devices.parse_unit(id).card == card.id
        ]
        assert sum(plugin_devices.parse_unit(id).share for id in on_it) <= card.capacity
        assert len(on_it) == len(set(on_it))


LIMITS = {
    "MPS": {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=40000M",
    },
    "HAMiCore": {
        "CUDA_DEVICE_SM_LIMIT": "50",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "40000m",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/croupier-vgpu.cache",
    },
    "None": {},
}


@pytest.mark.parametrize(("enforcement", "limits"), LIMITS.items(), ids=LIMITS)
def test_the_variables_of_a_share_follow_the_enforcement_of_its_pool(enforcement, limits):
    card = replace(pooled(), pool=PoolMembership("blue", Sharing("MPS", enforcement=enforcement)))
    offer = plugin_devices.served_resources([card])
    ids = [device.id for device in offer.resources[BLUE][:50]]

    answer = device_allocation.allocate(BLUE, ids, AllocationInputs(offer), None)

    assert isinstance(answer, ContainerAllocation)
    assert {key: text for key, text in answer.env.items() if key.startswith("CUDA_")} == limits


def test_shares_of_several_cards_are_refused_where_each_card_has_its_daemon():
    cards = [whole(n) for n in range(2)]
    daemons = [replace(card, enforcement=CardEnforcement("MPSClient", owned=True)) for card in cards]
    outcomes = []
    for served in (cards, daemons):
        offer = plugin_devices.served_resources(served)
        ids = [f"{card.id}::p{number:02}" for card in served for number in range(50)]
        outcomes.append(device_allocation.allocate(PERCENT, ids, AllocationInputs(offer), None))

    assert isinstance(outcomes[0], ContainerAllocation)
    assert isinstance(outcomes[1], Refusal)
    assert device_allocation.SEVERAL_DAEMONS in str(outcomes[1])


def test_a_share_that_cannot_be_enforced_is_refused_with_the_reason():
    withheld = CardEnforcement("MPSClient", ready=False, message="its MPS daemon does not answer")
    offer = plugin_devices.served_resources([replace(whole(), enforcement=withheld)])
    answer = device_allocation.allocate(PERCENT, [f"{name(0)}::p00"], AllocationInputs(offer), None)

    assert isinstance(answer, Refusal)
    assert "its MPS daemon does not answer" in str(answer)
