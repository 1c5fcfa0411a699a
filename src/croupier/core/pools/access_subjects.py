"""Whether the namespaces and service accounts of spec.access exist.

A pool that names one that does not exist keeps serving all others: namespaces are often created after the
pool that they use. So it is a condition of its own, and not Misconfigured.
"""

from collections.abc import Callable, Sequence
from typing import Final

from croupier.core.model import name_list
from croupier.core.model.condition import DesiredCondition
from croupier.core.pools.admission import PoolAccess

ACCESS_UNRESOLVED: Final = "AccessUnresolved"
_MAX_NAMED: Final = 5

RESOLVED: Final = DesiredCondition(
    ACCESS_UNRESOLVED,
    "False",
    "Resolved",
    "every namespace and service account in spec.access exists, or spec.access names none",
)


def decide(
    access: PoolAccess, namespace_exists: Callable[[str], bool], account_exists: Callable[[str], bool]
) -> DesiredCondition:
    """The condition of the pool. Service accounts are written as namespace/name."""
    namespaces = [name for name in sorted(namespaces_of(access)) if not namespace_exists(name)]
    accounts = [
        account
        for account in sorted(access.accounts)
        if account.partition("/")[0] not in namespaces and not account_exists(account)
    ]
    if not namespaces and not accounts:
        return RESOLVED
    missing = " and ".join(
        filter(None, (_named("namespace", namespaces), _named("service account", accounts)))
    )
    single = len(namespaces) + len(accounts) == 1
    why = (
        f"spec.access names {missing}, which {'does' if single else 'do'} not exist;"
        f" create {'it' if single else 'them'}, or correct spec.access"
    )
    reason = "NamespaceNotFound" if namespaces else "ServiceAccountNotFound"
    return DesiredCondition(ACCESS_UNRESOLVED, "True", reason, why)


def _named(kind: str, names: Sequence[str]) -> str:
    if not names:
        return ""
    return name_list.introduced(kind, names, _MAX_NAMED)


def namespaces_of(access: PoolAccess) -> frozenset[str]:
    """The namespaces that spec.access names, also in service accounts."""
    return access.namespaces | {account.partition("/")[0] for account in access.accounts}
