"""Conversion of pools and requests for the access decision."""

from croupier.admission import pools
from croupier.admission.pools import Defaults, Guard
from croupier.admission.review import AdmissionRequest, UserInfo, Verdict
from croupier.api.gpu import GPUPool
from croupier.core.pods.eligible import Taint
from croupier.core.pods.request import POOL
from croupier.core.pools.admission import Subjects
from tests.admission import gate as envs
from tests.admission.test_pools import pool

TEAM = f"{POOL}team-a"


def nowhere(_name: str) -> GPUPool | None:
    return None


def test_facts_of_a_pool():
    taint = {"key": "gpu", "effect": "NoExecute"}
    access = {"namespaces": ["a"], "serviceAccounts": ["a/b"], "dexGroups": ["g"]}
    found = pool(access=access, scheduling={"taints": [taint], "topologyKey": "rack"})

    seen = pools.facts(found)

    assert (seen.name, seen.total, seen.unit, seen.closed) == ("team-a", 8, "Card", "")
    assert seen.access == Subjects(frozenset({"a"}), frozenset({"a/b"}), frozenset({"g"}))
    assert (seen.taints, seen.spread_over) == ((Taint("gpu", "NoExecute"),), "rack")
    assert pools.facts(pool(total=None)).total is None
    assert pools.facts(pool(), Defaults("BinPack")).spread_over == ""
    assert pools.facts(pool(), Defaults("Spread", "rack")).spread_over == "rack"


def test_the_mirror_of_a_static_pod_is_not_changed():
    mirror = envs.pod("static", {TEAM: "1"}, {"kubernetes.io/config.mirror": "hash"})

    assert Guard(nowhere).mutate(AdmissionRequest(uid="u", object=mirror)) == Verdict()


def test_the_requesting_user_and_account():
    request = AdmissionRequest(
        uid="u",
        namespace="ml",
        user_info=UserInfo("alice", ("ml-people",)),
        object={"spec": {"serviceAccountName": "trainer"}},
    )

    asker = pools.asker(request)

    assert (asker.key, asker.user, asker.groups) == ("ml/trainer", "alice", ("ml-people",))
    assert pools.asker(AdmissionRequest(uid="u", namespace="ml", object={})).key == "ml/default"
