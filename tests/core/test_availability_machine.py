"""After any sequence of node and pod changes the index equals a recount."""

from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from croupier.core.availability import NOTHING, AccountedPod, Availability, ResourceAmounts
from croupier.core.quantity import NANO, ZERO, Quantity

NODES = ("node-1", "node-2", "gpu-worker")
RESOURCES = ("cpu", "memory", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "gpu.mps.io/ledger")
NAMES = st.sampled_from([f"team/p{number}" for number in range(6)])
AMOUNTS = st.dictionaries(
    st.sampled_from(RESOURCES), st.sampled_from([1, NANO // 10, NANO, 3 * NANO]).map(Quantity), max_size=4
)
REPORTED = st.dictionaries(
    st.sampled_from(RESOURCES), st.sampled_from([0, NANO // 2, NANO, 8 * NANO]).map(Quantity), max_size=4
)


class Recounted(RuleBasedStateMachine):
    """A model of plain dicts, compared with the index that receives every change."""

    def __init__(self) -> None:
        super().__init__()
        self.index = Availability()
        self.nodes: dict[str, tuple[Mapping[str, Quantity], Mapping[str, Quantity]]] = {}
        self.cordoned: set[str] = set()
        self.pods: dict[str, AccountedPod] = {}
        self.born = 0
        self.kept: list[
            tuple[Mapping[str, Mapping[str, ResourceAmounts]], dict[str, dict[str, ResourceAmounts]]]
        ] = []

    @rule(name=st.sampled_from(NODES), allocatable=REPORTED, reserved=REPORTED, cordoned=st.booleans())
    def a_node_reports(self, name, allocatable, reserved, cordoned):
        capacity = {
            resource: allocatable.get(resource, ZERO) + reserved.get(resource, ZERO)
            for resource in {*allocatable, *reserved}
        }
        self.nodes[name] = (allocatable, capacity)
        self._cordon(name, cordoned)

    @rule(name=st.sampled_from(NODES), cordoned=st.booleans())
    def a_node_is_cordoned(self, name, cordoned):
        if name in self.nodes:
            self._cordon(name, cordoned)

    def _cordon(self, name: str, cordoned: bool) -> None:
        (self.cordoned.add if cordoned else self.cordoned.discard)(name)
        self.index.set_node(name, *self.nodes[name], cordoned=cordoned)

    @rule(name=st.sampled_from(NODES))
    def a_node_is_deleted(self, name):
        self.nodes.pop(name, None)
        self.cordoned.discard(name)
        self.index.drop_node(name)

    @rule(key=NAMES, node=st.sampled_from(NODES), requests=AMOUNTS)
    def a_pod_is_bound(self, key, node, requests):
        """It may replace a pod with the same name whose deletion was not delivered."""
        self.born += 1
        self._set(AccountedPod(key, f"uid-{self.born}", node, requests))

    @rule(key=NAMES, requests=AMOUNTS)
    def a_pod_changes(self, key, requests):
        if key in self.pods:
            was = self.pods[key]
            self._set(AccountedPod(key, was.uid, was.node, requests))

    @rule(key=NAMES, node=st.sampled_from(NODES))
    def a_uid_moves_to_another_node(self, key, node):
        if key in self.pods:
            was = self.pods[key]
            self._set(AccountedPod(key, was.uid, node, was.requests))

    @rule(key=NAMES)
    def nothing_changes(self, key):
        if key in self.pods:
            before = self.index.version
            self.index.set_pod(self.pods[key])
            assert self.index.version == before

    @rule(key=NAMES)
    def a_pod_ends(self, key):
        if key in self.pods:
            self.index.drop_pod(self.pods.pop(key).uid)

    @rule()
    def an_unknown_pod_ends(self):
        self.index.drop_pod("unknown")

    @rule()
    def a_snapshot_is_kept(self):
        picture = self.index.snapshot()
        self.kept.append((picture, {name: dict(account) for name, account in picture.items()}))

    @rule(resource=st.sampled_from(RESOURCES))
    def max_free_is_queried(self, resource):
        """From now on the index maintains it for this resource."""
        self.index.max_free(resource)

    def _set(self, pod: AccountedPod) -> None:
        self.pods[pod.key] = pod
        self.index.set_pod(pod)

    def recount(self) -> dict[str, dict[str, ResourceAmounts]]:
        counted = {}
        for name, (allocatable, capacity) in self.nodes.items():
            asked: dict[str, Quantity] = {}
            for pod in self.pods.values():
                for resource, amount in pod.requests.items() if pod.node == name else ():
                    asked[resource] = asked.get(resource, ZERO) + amount
            counted[name] = {
                resource: ResourceAmounts.of(
                    capacity.get(resource, ZERO), allocatable.get(resource, ZERO), asked.get(resource, ZERO)
                )
                for resource in {*allocatable, *capacity, *asked}
            }
        return counted

    @invariant()
    def all_amounts_equal_a_recount(self):
        counted = self.recount()
        assert self.index.snapshot() == counted
        assert set(self.index.nodes()) == set(counted)
        assert {name for name in NODES if self.index.cordoned(name)} == self.cordoned
        assert set(self.index.resources()) == {
            resource for account in counted.values() for resource in account
        }
        for resource in RESOURCES:
            threes = [account[resource] for account in counted.values() if resource in account]
            total = self.index.total(resource)
            assert total.capacity == sum((amounts.capacity for amounts in threes), ZERO)
            assert total.allocatable == sum((amounts.allocatable for amounts in threes), ZERO)
            assert total.allocated == sum((amounts.allocated for amounts in threes), ZERO)
            assert self.index.exists(resource) == any(
                amounts.allocatable >= Quantity(NANO) for amounts in threes
            )
            for name in NODES:
                assert self.index.three(name, resource) == counted.get(name, {}).get(resource, NOTHING)

    @invariant()
    def max_free_is_that_of_one_node(self):
        for resource in self.index._heaps.keys() & {*RESOURCES}:
            counted = self.recount().items()
            open_ = [
                account for name, account in counted if name not in self.cordoned and resource in account
            ]
            free = [account[resource].available for account in open_]
            assert self.index.max_free(resource) == max(free, default=ZERO)

    @invariant()
    def snapshots_do_not_change(self):
        for picture, copied in self.kept:
            assert picture == copied

    @invariant()
    def nothing_is_stored_for_deleted_objects(self):
        bound = {pod.node for pod in self.pods.values()}
        assert set(self.index._nodes) == {*self.nodes, *bound}
        assert len(self.index._pods) == len(self.index._uids) == len(self.pods)
        assert self.index._heaps.keys() <= self.index._totals.keys()


TestRecounted = Recounted.TestCase
TestRecounted.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
