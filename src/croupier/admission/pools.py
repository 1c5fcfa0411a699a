"""Pool access control: which users may use a pool, and what a pod needs to reach its cards.

Only caches are read, because the API server waits for the answer. A pod is checked twice, by a mutating and
by a validating webhook, because a later webhook could add a request for a pool.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from croupier.admission.review import AdmissionRequest, AdmissionVerdict
from croupier.api.core_v1 import MIRROR
from croupier.api.gpu import GPUPool, convert_pool
from croupier.api.gpu.pool import UNIT_OF_MODE
from croupier.core.model import sharing
from croupier.core.model.refusal import Refusal
from croupier.core.placement.card_selection import Strategy
from croupier.core.pods import disabled
from croupier.core.pods.scheduler_filters import NodeTaint
from croupier.core.pools import admission as pool_admission
from croupier.core.pools.admission import (
    AdmissionPool,
    PodRequester,
    PoolAdmitted,
)

TOPOLOGY_KEY: Final = "topology.kubernetes.io/zone"
AVAILABLE: Final = "Available"
POOLS_DISABLED: Final = (
    f"{disabled.DISABLED}, so access to a pool cannot be checked: create the pod again when it is enabled"
)


@dataclass(frozen=True, slots=True)
class PoolDefaults:
    """Defaults of pools: settings of `scheduling` and `sharing`."""

    strategy: Strategy = "Spread"
    topology_key: str = TOPOLOGY_KEY
    smallest: int = 1
    """The smallest share of a card: the setting sharing.minPercent."""


DEFAULTS: Final = PoolDefaults()


class PoolsDisabled:
    """Pods must not bypass the access check: such a pod would wait, and start when it is enabled again."""

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        if _is_mirror(request.object):
            return AdmissionVerdict()
        return AdmissionVerdict(allowed=False, sentence=POOLS_DISABLED)


@dataclass(frozen=True, slots=True)
class PoolAccessGuard:
    """`defaults` is called for each pod, so that changed settings apply to the next one."""

    find: Callable[[str], GPUPool | None]
    defaults: Callable[[], PoolDefaults] = lambda: DEFAULTS

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        pod = request.object
        if _is_mirror(pod):
            return AdmissionVerdict()  # the mirror of a static pod, which runs already
        match pool_admission.decide(pod, asker(request), self._known, request_id=request.uid):
            case Refusal(reason):
                return AdmissionVerdict(allowed=False, sentence=reason)
            case PoolAdmitted(operations=operations, warnings=warnings):
                return AdmissionVerdict(operations=operations, warnings=warnings)
            case None:
                return AdmissionVerdict()

    def _known(self, name: str) -> AdmissionPool | None:
        pool = self.find(name)
        return None if pool is None else pool_facts(pool, self.defaults())


def asker(request: AdmissionRequest) -> PodRequester:
    """The service account of the pod, and the user and groups of its creator."""
    spec = _mapping(_mapping(request.object).get("spec"))
    named = spec.get("serviceAccountName")
    user = request.user_info
    account = named if isinstance(named, str) and named else "default"
    return PodRequester(request.namespace or "", account, user.username, user.groups)


def pool_facts(pool: GPUPool, defaults: PoolDefaults = DEFAULTS) -> AdmissionPool:
    spec, status = pool.spec, pool.status
    capacity, scheduling = status.capacity, spec.scheduling
    strategy = scheduling.strategy or defaults.strategy
    holding = {
        condition.type: condition.message for condition in status.conditions if condition.status == "True"
    }
    leaving = pool.metadata.deletion_timestamp is not None
    return AdmissionPool(
        name=pool.metadata.name,
        access=convert_pool.access(pool),
        closed=pool_admission.closed_reason(pool.metadata.name, holding, deleting=leaving),
        total=capacity.total if capacity is not None else None,
        per_pod=capacity.per_pod if capacity is not None else None,
        unavailable=next(
            (item.message for item in status.conditions if item.type == AVAILABLE and item.status == "False"),
            "",
        ),
        unit=(capacity.unit if capacity is not None else None) or UNIT_OF_MODE[spec.allocation.mode],
        modes=tuple(
            {sharing.card_mode(one.mode): None for one in (status.allocation, spec.allocation) if one}
        ),
        smallest=spec.resource.min_percent or defaults.smallest,
        taints=tuple(NodeTaint(taint.key, taint.effect, taint.value) for taint in scheduling.taints),
        spread_over=(scheduling.topology_key or defaults.topology_key) if strategy == "Spread" else "",
    )


def _is_mirror(pod: Any) -> bool:
    metadata = _mapping(_mapping(pod).get("metadata"))
    return MIRROR in _mapping(metadata.get("annotations"))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
