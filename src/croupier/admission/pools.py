"""Pool access control: which users may use a pool, and what a pod needs to reach its cards.

Only caches are read, because the API server waits for the answer. A pod is checked twice, by a mutating and
by a validating webhook, because a later webhook could add a request for a pool.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from croupier.admission.policy import MIRROR
from croupier.admission.review import AdmissionRequest, Verdict
from croupier.api.gpu import GPUPool
from croupier.api.gpu.pool import UNIT_OF_MODE
from croupier.core.placing.picking import Strategy
from croupier.core.pods.eligible import Taint
from croupier.core.pools import admission as pool_admission
from croupier.core.pools.admission import Admitted, Asker, Denied, Pool, Subjects, Unconcerned

TOPOLOGY_KEY: Final = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults of pools: the settings scheduling.defaultStrategy and scheduling.topologyKey."""

    strategy: Strategy = "Spread"
    topology_key: str = TOPOLOGY_KEY


DEFAULTS: Final = Defaults()


@dataclass(frozen=True, slots=True)
class Guard:
    """`defaults` is called for each pod, so that changed settings apply to the next one."""

    find: Callable[[str], GPUPool | None]
    defaults: Callable[[], Defaults] = lambda: DEFAULTS

    def mutate(self, request: AdmissionRequest) -> Verdict:
        pod = request.object
        if _is_mirror(pod):
            return Verdict()  # the mirror of a static pod, which runs already
        match pool_admission.decide(pod, asker(request), self._known, request_id=request.uid):
            case Denied(sentence):
                return Verdict(allowed=False, sentence=sentence)
            case Admitted(operations=operations, warnings=warnings):
                return Verdict(operations=operations, warnings=warnings)
            case Unconcerned():
                return Verdict()

    def _known(self, name: str) -> Pool | None:
        pool = self.find(name)
        return None if pool is None else facts(pool, self.defaults())


def asker(request: AdmissionRequest) -> Asker:
    """The service account of the pod, and the user and groups of its creator."""
    spec = _mapping(_mapping(request.object).get("spec"))
    named = spec.get("serviceAccountName")
    user = request.user_info
    account = named if isinstance(named, str) and named else "default"
    return Asker(request.namespace or "", account, user.username, user.groups)


def facts(pool: GPUPool, defaults: Defaults = DEFAULTS) -> Pool:
    spec, status = pool.spec, pool.status
    capacity, access, scheduling = status.capacity, spec.access, spec.scheduling
    strategy = scheduling.strategy or defaults.strategy
    holding = {
        condition.type: condition.message for condition in status.conditions if condition.status == "True"
    }
    leaving = pool.metadata.deletion_timestamp is not None
    return Pool(
        name=pool.metadata.name,
        access=Subjects(
            frozenset(access.namespaces), frozenset(access.service_accounts), frozenset(access.dex_groups)
        ),
        closed=pool_admission.closed(pool.metadata.name, holding, leaving=leaving),
        total=capacity.total if capacity is not None else None,
        unit=(capacity.unit if capacity is not None else None) or UNIT_OF_MODE[spec.allocation.mode],
        taints=tuple(Taint(taint.key, taint.effect, taint.value) for taint in scheduling.taints),
        spread_over=(scheduling.topology_key or defaults.topology_key) if strategy == "Spread" else "",
    )


def _is_mirror(pod: Any) -> bool:
    metadata = _mapping(_mapping(pod).get("metadata"))
    return MIRROR in _mapping(metadata.get("annotations"))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
