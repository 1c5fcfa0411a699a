"""Guards the pools: who may use one, and what a pod needs to find its cards.

Everything is in memory: the API server waits while we decide. The same is asked twice, once while a pod may
still be changed and once when nobody can change it any more, because somebody behind us could otherwise bring
in a request for a pool.
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
    """For pools that do not say: the settings scheduling.defaultStrategy and scheduling.topologyKey."""

    strategy: Strategy = "Spread"
    topology_key: str = TOPOLOGY_KEY


DEFAULTS: Final = Defaults()


@dataclass(frozen=True, slots=True)
class Guard:
    """`find` looks a pool up; `defaults` is asked for each pod, as a change counts for the next one."""

    find: Callable[[str], GPUPool | None]
    defaults: Callable[[], Defaults] = lambda: DEFAULTS

    def mutate(self, request: AdmissionRequest) -> Verdict:
        pod = request.object
        if _is_mirror(pod):
            return Verdict()  # a static pod runs already; this only shows it
        match pool_admission.decide(pod, asker(request), self._known, request_id=request.uid):
            case Denied(sentence):
                return Verdict(allowed=False, sentence=sentence)
            case Admitted(operations=operations, warnings=warnings):
                return Verdict(operations=operations, warnings=warnings)
            case Unconcerned():
                return Verdict()

    def _known(self, name: str) -> Pool | None:
        found = self.find(name)
        return None if found is None else facts(found, self.defaults())


def asker(request: AdmissionRequest) -> Asker:
    """The account is the pod's own, which may be any of its namespace; the groups are its creator's."""
    spec = _mapping(_mapping(request.object).get("spec"))
    named = spec.get("serviceAccountName")
    user = request.user_info
    account = named if isinstance(named, str) and named else "default"
    return Asker(request.namespace or "", account, user.username, user.groups)


def facts(found: GPUPool, defaults: Defaults = DEFAULTS) -> Pool:
    spec, status = found.spec, found.status
    capacity, access, scheduling = status.capacity, spec.access, spec.scheduling
    strategy = scheduling.strategy or defaults.strategy
    holding = {one.type: one.message for one in status.conditions if one.status == "True"}
    leaving = found.metadata.deletion_timestamp is not None
    return Pool(
        name=found.metadata.name,
        access=Subjects(
            frozenset(access.namespaces), frozenset(access.service_accounts), frozenset(access.dex_groups)
        ),
        closed=pool_admission.closed(found.metadata.name, holding, leaving=leaving),
        total=capacity.total if capacity is not None else None,
        unit=(capacity.unit if capacity is not None else None) or UNIT_OF_MODE[spec.allocation.mode],
        taints=tuple(Taint(one.key, one.effect, one.value) for one in scheduling.taints),
        spread_over=(scheduling.topology_key or defaults.topology_key) if strategy == "Spread" else "",
    )


def _is_mirror(pod: Any) -> bool:
    metadata = _mapping(_mapping(pod).get("metadata"))
    return MIRROR in _mapping(metadata.get("annotations"))


def _mapping(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}
