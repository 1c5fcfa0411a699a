"""The namespaces and service accounts in spec.access of pools: whether they exist, and when that changes."""

from collections.abc import Callable
from typing import Any

from croupier.api.core_v1 import Namespace, ServiceAccount
from croupier.api.gpu import GPUPool, convert_pool
from croupier.core.model.condition import DesiredCondition
from croupier.core.pools import access_subjects
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.store import ObjectChange


class AccessSubjects:
    def __init__(
        self,
        pools: Informer[GPUPool],
        namespaces: Informer[Namespace],
        accounts: Informer[ServiceAccount],
    ) -> None:
        self._pools = pools.store
        self._namespaces = namespaces.store
        self._accounts = accounts.store

    def condition(self, pool: GPUPool) -> DesiredCondition:
        return access_subjects.decide(
            convert_pool.access(pool),
            lambda name: self._namespaces.named(name) is not None,
            self._account_exists,
        )

    def _account_exists(self, account: str) -> bool:
        namespace, _, name = account.partition("/")
        return self._accounts.named(name, namespace) is not None

    def follow(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call `changed(pool)` for pools whose subjects are created or deleted; the result unsubscribes."""

        def note(change: ObjectChange[Any]) -> None:
            if change.old is not None and change.new is not None:
                return
            namespace = change.key.namespace or change.key.name
            for pool in self._pools:
                if namespace in access_subjects.namespaces_of(convert_pool.access(pool)):
                    changed(pool.metadata.name)

        endings = (self._namespaces.subscribe(note), self._accounts.subscribe(note))

        def end() -> None:
            for unsubscribe in endings:
                unsubscribe()

        return end
