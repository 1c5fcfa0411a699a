"""What a viewer may see is asked of a real API server, and believed for a short time.

A granted right is believed for 30 s, a missing one for 5 s, on a clock that the test moves.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
import yaml

from croupier.api import kinds
from croupier.api.gpu import GPUPool
from croupier.api.gpu.pool import Access, GPUPoolSpec, PoolAllocation
from croupier.api.meta import ObjectMeta
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import SystemClock
from croupier.ui import rights
from croupier.ui.rights import ALL, AccessQuestion, Rights, RightsReader
from croupier.ui.viewer import Viewer
from tests.polling import until_async
from tests.ui.hostile_env import HostileLab
from tests.ui.hostile_world import SECRET, TENANT

RBAC = "rbac.authorization.k8s.io"


class StoppedClock(SystemClock):
    """Time passes when the test says so."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class Reader:
    api: Client
    lab: HostileLab
    clock: StoppedClock = field(default_factory=StoppedClock)
    reviews: Counter[str] = field(default_factory=Counter)
    names: tuple[str, ...] = (TENANT, SECRET)
    pools: tuple[GPUPool, ...] = ()

    def __post_init__(self) -> None:
        self.rights = RightsReader(
            self.api, namespaces=lambda: self.names, pools=lambda: self.pools, clock=self.clock
        )

    def grant(self, user: str, resource: str) -> None:
        self.lab.lab.kubectl("apply", "-f", "-", stdin=_grant(user, resource))

    def revoke(self, user: str) -> None:
        self.lab.lab.kubectl("delete", "clusterrolebinding", user)

    async def until(self, user: str, resource: str, *, allowed: bool) -> None:
        """The API server itself needs a moment to know a new binding."""
        group = {"pods": ""}.get(resource, "gpu.deckhouse.io")
        spec = AccessQuestion(user, (), resource, group).spec(about_self=False)

        async def knows() -> bool:
            review = await self.api.create(kinds.SUBJECT_ACCESS_REVIEWS, {"spec": spec})
            return bool(review["status"]["allowed"]) == allowed

        await until_async(knows, f"the API server to know the rights of {user}")
        self.reviews.clear()


def _grant(user: str, resource: str) -> str:
    meta = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": user}}
    rule = {"apiGroups": ["*"], "resources": [resource], "verbs": ["list"]}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": user}
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": user}]
    return yaml.safe_dump_all(
        [
            {**meta, "kind": "ClusterRole", "rules": [rule]},
            {**meta, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects},
        ]
    )


@contextlib.asynccontextmanager
async def reading(hostile: HostileLab) -> AsyncIterator[Reader]:
    reviews: Counter[str] = Counter()

    def observe(verb: str, resource: str, code: int, seconds: float) -> None:
        reviews[resource] += 1

    settings = config.load(hostile.lab.kubeconfig)
    async with api_client.connect(settings, observe=observe) as api:
        yield Reader(api, hostile, reviews=reviews)


async def test_a_missing_right_is_believed_for_five_seconds(hostile: HostileLab):
    async with reading(hostile) as reader:
        eve = Viewer("eve", mode="headers")
        assert await reader.rights.of(eve) == Rights()
        reader.grant("eve", "gpudevices")
        await reader.until("eve", "gpudevices", allowed=True)
        reader.clock.seconds = 4.9
        assert await reader.rights.of(eve) == Rights()
        assert reader.reviews.total() == 0
        reader.clock.seconds = 5.1
        assert await reader.rights.of(eve) == Rights(cards=True)


async def test_a_granted_right_is_believed_for_half_a_minute(hostile: HostileLab):
    async with reading(hostile) as reader:
        mallory = Viewer("mallory", mode="headers")
        reader.grant("mallory", "gpudevices")
        await reader.until("mallory", "gpudevices", allowed=True)
        assert (await reader.rights.of(mallory)).cards
        reader.revoke("mallory")
        await reader.until("mallory", "gpudevices", allowed=False)
        reader.clock.seconds = 29.9
        assert (await reader.rights.of(mallory)).cards
        reader.clock.seconds = 30.1
        assert not (await reader.rights.of(mallory)).cards


async def test_viewers_who_ask_at_once_share_the_questions(hostile: HostileLab):
    async with reading(hostile) as reader:
        stranger = Viewer("stranger", mode="headers")
        found = await asyncio.gather(*(reader.rights.of(stranger) for _ in range(50)))
        assert set(found) == {Rights()}
        assert reader.reviews.total() == 4 + len(reader.names), "four kinds, and pods of each namespace"


async def test_accounts_see_what_their_roles_say(hostile: HostileLab):
    async with reading(hostile) as reader:

        async def of(name: str) -> Rights:
            groups = ("system:serviceaccounts", f"system:serviceaccounts:{TENANT}", "system:authenticated")
            return await reader.rights.of(
                Viewer(f"system:serviceaccount:{TENANT}:{name}", groups, mode="token")
            )

        assert await of("admin") == await of("reader") == ALL
        assert await of("tenant") == Rights(namespaces=frozenset({TENANT}))
        assert await of("cards") == Rights(cards=True, namespaces=frozenset({TENANT}), pools=None)
        assert await reader.rights.of(Viewer("anyone", mode="local")) == ALL, "the process itself is asked"


async def test_a_user_is_not_confused_with_another_of_the_same_name_and_other_groups(hostile: HostileLab):
    async with reading(hostile) as reader:
        assert await reader.rights.of(Viewer("twin", ("system:masters",), mode="headers")) == ALL
        assert await reader.rights.of(Viewer("twin", (), mode="headers")) == Rights()


def pool(**access: tuple[str, ...]) -> GPUPool:
    spec = GPUPoolSpec(allocation=PoolAllocation(mode="MPS"), access=Access(**access))
    return GPUPool(metadata=ObjectMeta(name="pool"), spec=spec)


Case = tuple[Callable[[], GPUPool], frozenset[str] | None, tuple[str, ...], bool]
OPEN_POOLS: dict[str, Case] = {
    "open to everybody": (pool, frozenset({"apple"}), (), True),
    "open to everybody, for a viewer without a namespace": (pool, frozenset(), (), False),
    "own namespace": (lambda: pool(namespaces=("apple",)), frozenset({"apple"}), (), True),
    "another namespace": (lambda: pool(namespaces=("pear",)), frozenset({"apple"}), (), False),
    "all namespaces": (lambda: pool(namespaces=("pear",)), None, (), True),
    "an account of the own namespace": (
        lambda: pool(service_accounts=("apple/robot",)),
        frozenset({"apple"}),
        (),
        True,
    ),
    "an account of another namespace": (
        lambda: pool(service_accounts=("pear/robot",)),
        frozenset({"apple"}),
        (),
        False,
    ),
    "own group": (lambda: pool(dex_groups=("team",)), frozenset({"apple"}), ("team",), True),
    "another group": (lambda: pool(dex_groups=("team",)), frozenset({"apple"}), ("others",), False),
}


@pytest.mark.parametrize(("made", "namespaces", "groups", "is_open"), OPEN_POOLS.values(), ids=OPEN_POOLS)
def test_open_pools(made, namespaces, groups, is_open):
    assert rights.open_pools([made()], namespaces, groups) == frozenset({"pool"} if is_open else ())
