"""Every result of a reconcile has exactly one outcome."""

import pytest

from croupier.kube import reconcile
from croupier.kube.errors import Conflict, ServerError, TooManyRequests
from croupier.kube.reconcile import DONE, Finished, GiveUp, Later, Result, Retry, Terminal

BROKEN = RuntimeError("the disk is on fire")
CONFLICT = Conflict(409, "Conflict", "the object has been modified")
BUSY = TooManyRequests(429, "TooManyRequests", "slow down", retry_after=7.0)
DOWN = ServerError(500, "InternalError", "etcd is away")
HOPELESS = Terminal("spec.podKey names another namespace")

ENDINGS = {
    "done": (DONE, Finished()),
    "again": (Result(again_after=15), Later(15)),
    "again at once": (Result(again_after=0), Later(0)),
    "a bug": (BROKEN, Retry(BROKEN)),
    "a server error": (DOWN, Retry(DOWN)),
    "a lost race": (CONFLICT, Retry(CONFLICT, loud=False)),
    "too many requests": (BUSY, Retry(BUSY, no_sooner=7.0)),
    "hopeless": (HOPELESS, GiveUp(HOPELESS)),
}


@pytest.mark.parametrize(("ending", "verdict"), ENDINGS.values(), ids=ENDINGS)
def test_every_result_has_one_outcome(ending, verdict):
    assert reconcile.judge(ending) == verdict


def test_a_negative_delay_is_refused():
    with pytest.raises(ValueError, match="must not be negative, but is -1"):
        Result(again_after=-1)
