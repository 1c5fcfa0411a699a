"""Every result of a reconcile has exactly one outcome."""

import pytest

from croupier.kube.client.errors import Conflict, ServerError, TooManyRequests
from croupier.kube.controller import reconcile
from croupier.kube.controller.reconcile import (
    DONE,
    Done,
    NoRetry,
    RequeueAfter,
    Result,
    RetryWithBackoff,
    TerminalError,
)

BROKEN = RuntimeError("the disk is on fire")
CONFLICT = Conflict(409, "Conflict", "the object has been modified")
BUSY = TooManyRequests(429, "TooManyRequests", "slow down", retry_after=7.0)
DOWN = ServerError(500, "InternalError", "etcd is away")
HOPELESS = TerminalError("spec.podKey names another namespace")

ENDINGS = {
    "done": (DONE, Done()),
    "again": (Result(requeue_after=15), RequeueAfter(15)),
    "again at once": (Result(requeue_after=0), RequeueAfter(0)),
    "a bug": (BROKEN, RetryWithBackoff(BROKEN)),
    "a server error": (DOWN, RetryWithBackoff(DOWN)),
    "a lost race": (CONFLICT, RetryWithBackoff(CONFLICT, loud=False)),
    "too many requests": (BUSY, RetryWithBackoff(BUSY, no_sooner=7.0)),
    "hopeless": (HOPELESS, NoRetry(HOPELESS)),
}


@pytest.mark.parametrize(("ending", "verdict"), ENDINGS.values(), ids=ENDINGS)
def test_every_result_has_one_outcome(ending, verdict):
    assert reconcile.classify(ending) == verdict


def test_a_negative_delay_is_refused():
    with pytest.raises(ValueError, match="must not be negative, but is -1"):
        Result(requeue_after=-1)
