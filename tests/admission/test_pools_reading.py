"""Conversion of pools and requests for the access decision."""

from croupier.admission import pools
from croupier.admission.pools import PoolAccessGuard, PoolDefaults
from croupier.admission.review import AdmissionRequest, AdmissionVerdict, UserInfo
from croupier.api.gpu import GPUPool
from croupier.core.pods.request_parser import POOL
from croupier.core.pods.scheduler_filters import NodeTaint
from croupier.core.pools.admission import PoolAccess
from tests.admission import cluster_env as envs
from tests.admission.test_pools import pool

TEAM = f"{POOL}team-a"


def nowhere(_name: str) -> GPUPool | None:
    return None


def test_facts_of_a_pool():
    taint = {"key": "gpu", "effect": "NoExecute"}
    access = {"namespaces": ["a"], "serviceAccounts": ["a/b"], "dexGroups": ["g"]}
    found = pool(access=access, scheduling={"taints": [taint], "topologyKey": "rack"})

    seen = pools.pool_facts(found)

    assert (seen.name, seen.total, seen.unit, seen.closed) == ("team-a", 8, "Card", "")
    assert seen.access == PoolAccess(frozenset({"a"}), frozenset({"a/b"}), frozenset({"g"}))
    assert (seen.taints, seen.spread_over) == ((NodeTaint("gpu", "NoExecute"),), "rack")
    assert pools.pool_facts(pool(total=None)).total is None
    assert pools.pool_facts(pool(), PoolDefaults("BinPack")).spread_over == ""
    assert pools.pool_facts(pool(), PoolDefaults("Spread", "rack")).spread_over == "rack"


def test_the_mirror_of_a_static_pod_is_not_changed():
    mirror = envs.pod("static", {TEAM: "1"}, {"kubernetes.io/config.mirror": "hash"})

    assert PoolAccessGuard(nowhere).mutate(AdmissionRequest(uid="u", object=mirror)) == AdmissionVerdict()


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
