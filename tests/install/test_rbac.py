"""Rights are exact: what was used in a day is granted, and what is granted was used.

The API server wrote down who asked for what, while every process worked under its own account (a_day.py).
Then agents try what whoever took over their node would try: objects of other nodes.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from croupier.api import kinds
from croupier.kube import client, config
from croupier.kube.client import Client
from croupier.kube.errors import ApiError, Forbidden, Invalid
from tests.install import rendering, rights, town
from tests.install.rights import Deed, Right
from tests.install.town import NAMESPACE, Town

UPSTREAM = "kube-scheduler"
RARE = {
    "patch events.events.k8s.io": "an Event that comes again is counted: tests/kube/test_events.py",
    f"patch events.events.k8s.io in {NAMESPACE}": "as everywhere",
    f"create events.events.k8s.io in {NAMESPACE}": "wrong settings are told: tests/wiring",
}
"""What no day has to see, and which test does."""
RARE_FOR = {
    "gpu-admission-webhook": {
        f"patch secrets croupier-webhook-tls in {NAMESPACE}": "twice a year: tests/admission",
    },
    "croupier-ledger": {
        "get nodereservations.mps.nvidia.com": "when another wrote first: tests/book/test_crd.py",
        "patch pods": "the fence of a hold that nobody used in time: tests/controllers/test_holders.py",
        "get reservations.mps.nvidia.com": "a hold whose Reservation was not seen: tests/controllers",
    },
    "croupier-extender": {
        "get nodereservations.mps.nvidia.com": "when another wrote first: tests/book/test_crd.py",
        "get pods": "after a Binding whose answer was lost: tests/extender/test_binder.py",
        "patch pods": "waiting pods that the scheduler itself would not look at again: tests/extender",
    },
    "croupier-cpu-limits": {
        "get pods": "one not seen yet, or a resize in doubt: tests/controllers/test_podallocation.py",
        "patch podallocations.allocation.mbcas.io": "limits of a silent agent are given back: tests/node",
    },
}


def deeds(lived: Town) -> dict[str, set[Deed]]:
    """By account; of the upstream scheduler in the extender's pod what the chart grants it, its Lease."""
    done = rights.done(lived.audit.read_text(), NAMESPACE)
    return {
        account: {one for one in found if one.program != UPSTREAM or one.right.resource == "leases"}
        for account, found in done.items()
    }


def test_every_process_did_its_work_and_had_the_right_to_all_of_it(lived_in):
    granted, done = rights.granted(lived_in.objects), deeds(lived_in)
    assert done.keys() == granted.keys() == set(rendering.pods(lived_in.objects))

    assert {
        account: missing
        for account in granted
        if (missing := rights.lacking(granted[account], done[account]))
    } == {}
    assert [str(one.right) for found in done.values() for one in found if not one.allowed] == []


def test_every_right_was_used(lived_in):
    granted, done = rights.granted(lived_in.objects), deeds(lived_in)
    unused = {
        account: [one for one in rights.idle(some, done[account]) if not is_rare(account, one)]
        for account, some in granted.items()
    }

    assert {account: left for account, left in unused.items() if left} == {}


def is_rare(account: str, right: str) -> bool:
    return right in RARE or right in RARE_FOR.get(account, {})


def test_nothing_is_granted_by_wildcard_and_no_secret_but_our_own():
    for options in ((), town.OPTIONS, (rendering.HIGHLY_AVAILABLE,)):
        found = rendering.objects(*options)
        granted = {one for some in rights.granted(found).values() for one in some}
        assert "*" not in json.dumps(
            [one["rules"] for one in rendering.of_kind(found, "Role", "ClusterRole")]
        )
        secrets = {one for one in granted if one.resource.startswith("secrets")}
        assert {one.name for one in secrets if one.verb != "create"} == {"croupier-webhook-tls"}
        assert {one.namespace for one in secrets} == {NAMESPACE}
        assert rights.borrowed(found) == {
            ("croupier-extender", "system:kube-scheduler"),
            ("croupier-extender", "system:volume-scheduler"),
        }, "only the upstream scheduler has rights of the cluster's own"
        escalating = {"escalate", "bind", "impersonate"}
        assert not [
            one for one in granted if one.verb in escalating or one.resource == "serviceaccounts/token"
        ]


def test_the_comparison_notices_what_lacks_and_what_is_too_much():
    pods, nodes = Right("", "pods", "list"), Right("", "nodes", "list", name="mine")
    done = [Deed(Right("", "pods", "list", "default"), "croupier", allowed=True)]
    other = [Deed(Right("", "nodes", "list", name="theirs"), "croupier", allowed=False)]

    assert rights.idle({pods, nodes}, done) == ["list nodes mine"]
    assert rights.lacking({pods, nodes}, [*done, *other]) == ["list nodes"]
    assert rights.lacking({Right("", "pods", "list", "elsewhere")}, done) == ["list pods in default"]


@dataclass
class Strangers:
    """Agents of one node, and the objects of another."""

    admin: Client
    cards: Client
    market: Client


TRIES: dict[str, Callable[[Strangers], Awaitable[Any]]] = {
    "labels of another Node": lambda they: they.cards.patch(
        kinds.NODES, "theirs", {"metadata": {"labels": {"nvidia.com/gpu.count": "9"}}}
    ),
    "conditions of another Node": lambda they: they.cards.patch(
        kinds.NODES, "theirs", {"status": {"conditions": [condition()]}}, subresource="status"
    ),
    "a pod of another node": lambda they: they.cards.delete(kinds.PODS, "theirs", namespace="default"),
    "the allocation of such a pod": lambda they: they.cards.patch(
        kinds.PODS,
        "theirs",
        {"metadata": {"annotations": {"gpu.mps.io/allocation": "[]"}}},
        namespace="default",
    ),
    "the heartbeat of another agent": lambda they: they.cards.create(
        kinds.LEASES, lease("gpu-node-theirs", "gpu.deckhouse.io/node"), namespace=NAMESPACE
    ),
    "a limit on another node": lambda they: they.market.create(
        kinds.POD_ALLOCATIONS, limit("theirs"), namespace="default"
    ),
    "the heartbeat of another market": lambda they: they.market.create(
        kinds.LEASES, lease("mbcas-theirs", "mbcas.io/node"), namespace=NAMESPACE
    ),
}


def condition() -> dict[str, str]:
    return {"type": "MIGLayoutApplied", "status": "True", "reason": "Forged", "message": ""}


def lease(name: str, key: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {key: "theirs"}}, "spec": {}}


def limit(node: str) -> dict[str, Any]:
    spec = {"namespace": "default", "podName": "theirs", "desiredCPULimit": "1", "nodeName": node}
    return {"metadata": {"name": "theirs"}, "spec": spec}


@pytest.mark.parametrize("what", TRIES)
async def test_an_agent_writes_nothing_of_another_node(lived_in, what):
    at_home = {name: lived_in.account(name, node="mine") for name in await nodes(lived_in)}
    async with (
        client.connect(config.load(lived_in.lab.kubeconfig)) as admin,
        client.connect(config.load(at_home["croupier-node"])) as cards,
        client.connect(config.load(at_home["croupier-market"])) as market,
    ):
        with pytest.raises((Forbidden, Invalid), match="alone"):
            await TRIES[what](Strangers(admin, cards, market))


async def nodes(lived: Town) -> tuple[str, str]:
    """Two nodes, with a pod on the one that is not ours."""
    async with client.connect(config.load(lived.lab.kubeconfig)) as api:
        for name in ("mine", "theirs"):
            await unless_there(api.create(kinds.NODES, {"metadata": {"name": name}}))
        spec = {"nodeName": "theirs", "containers": [{"name": "main", "image": "any"}]}
        body = {"metadata": {"name": "theirs"}, "spec": spec}
        await unless_there(api.create(kinds.PODS, body, namespace="default"))
    return "croupier-node", "croupier-market"


async def unless_there(work: Awaitable[Any]) -> None:
    try:
        await work
    except ApiError as error:
        if "already exists" not in str(error):
            raise
