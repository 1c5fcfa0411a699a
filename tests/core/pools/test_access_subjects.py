"""A pool says which namespaces and service accounts of its access do not exist, and serves the others."""

import pytest

from croupier.core.pools import access_subjects
from croupier.core.pools.admission import EVERYONE, PoolAccess

NAMESPACES, ACCOUNTS = {"ml", "web"}, {"ml/trainer"}


def access(*namespaces: str, accounts: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> PoolAccess:
    return PoolAccess(frozenset(namespaces), frozenset(accounts), frozenset(groups))


FOUND = {
    "everyone": (EVERYONE, "", ""),
    "namespaces and accounts that exist": (access("ml", "web", accounts=("ml/trainer",)), "", ""),
    "groups, which no object lists": (access(groups=("strangers",)), "", ""),
    "a namespace": (
        access("ml", "gone"),
        "NamespaceNotFound",
        "spec.access names namespace gone, which does not exist; create it, or correct spec.access",
    ),
    "two namespaces, sorted": (
        access("lost", "gone"),
        "NamespaceNotFound",
        "spec.access names namespaces gone, lost, which do not exist; create them, or correct spec.access",
    ),
    "a service account": (
        access(accounts=("ml/gone", "ml/trainer")),
        "ServiceAccountNotFound",
        "spec.access names service account ml/gone, which does not exist; create it, or correct spec.access",
    ),
    "the namespace of a service account": (
        access(accounts=("gone/trainer",)),
        "NamespaceNotFound",
        "spec.access names namespace gone, which does not exist; create it, or correct spec.access",
    ),
    "both": (
        access("gone", accounts=("ml/gone",)),
        "NamespaceNotFound",
        "spec.access names namespace gone and service account ml/gone, which do not exist;"
        " create them, or correct spec.access",
    ),
    "many": (
        access(*"abcdefg"),
        "NamespaceNotFound",
        "spec.access names namespaces a, b, c, d, e and 2 more, which do not exist;"
        " create them, or correct spec.access",
    ),
}


@pytest.mark.parametrize(("wanted", "reason", "message"), FOUND.values(), ids=FOUND)
def test_the_subjects_that_do_not_exist(wanted: PoolAccess, reason: str, message: str) -> None:
    found = access_subjects.decide(wanted, NAMESPACES.__contains__, ACCOUNTS.__contains__)

    assert (found.status, found.reason) == (("True", reason) if reason else ("False", "Resolved"))
    if message:
        assert found.message == message
