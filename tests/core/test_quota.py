"""The quota that stops a pod is named with what is left of it now."""

import pytest

from croupier.core import quantity
from croupier.core.pods import quota
from croupier.core.pods.quota import Limits, Stop

GPUS = "requests.nvidia.com/gpu"
POOLED = "requests.gpu.deckhouse.io/team-a"
TOLD = (
    'Error creating: pods "trainer-5d4f8-" is forbidden: exceeded quota: cards, requested: '
    "requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=3, limited: requests.nvidia.com/gpu=4"
)
TWICE = (
    "exceeded quota: both, requested: requests.gpu.deckhouse.io/team-a=1,requests.nvidia.com/gpu=2, "
    "used: requests.gpu.deckhouse.io/team-a=8,requests.nvidia.com/gpu=3, limited: ..."
)


def limits(hard: dict[str, int], used: dict[str, int]) -> Limits:
    return Limits(*({name: quantity.parse(str(n)) for name, n in part.items()} for part in (hard, used)))


SAID = {
    "as it was told": (
        TOLD,
        limits({GPUS: 4}, {GPUS: 3}),
        "ResourceQuota cards stops it: it asks for 2 of nvidia.com/gpu, and 3 of 4 are used",
    ),
    "by the figures of now": (
        TOLD,
        limits({GPUS: 4}, {GPUS: 4}),
        "ResourceQuota cards stops it: it asks for 2 of nvidia.com/gpu, and 4 of 4 are used",
    ),
    "of two, both": (
        TWICE,
        limits({GPUS: 4, POOLED: 8}, {GPUS: 3, POOLED: 8}),
        "ResourceQuota both stops it: it asks for 1 of gpu.deckhouse.io/team-a, and 8 of 8 are used "
        "and it asks for 2 of nvidia.com/gpu, and 3 of 4 are used",
    ),
    "of two, the one that does now": (
        TWICE,
        limits({GPUS: 4, POOLED: 9}, {GPUS: 3, POOLED: 8}),
        "ResourceQuota both stops it: it asks for 2 of nvidia.com/gpu, and 3 of 4 are used",
    ),
    "room by now": (
        TOLD,
        limits({GPUS: 5}, {GPUS: 3}),
        "ResourceQuota cards stopped it and has room now: it comes when its owner tries again",
    ),
    "gone by now": (
        TOLD,
        None,
        "ResourceQuota cards stopped it and is gone now: it comes when its owner tries again",
    ),
    "what it must say": (
        "failed quota: cpu: must specify requests.cpu for: main",
        limits({}, {}),
        "ResourceQuota cpu stops it: it must say requests.cpu for: main",
    ),
}


@pytest.mark.parametrize(("refusal", "now", "sentence"), SAID.values(), ids=SAID)
def test_what_is_said(refusal, now, sentence):
    stop = quota.read(refusal)

    assert isinstance(stop, Stop)
    assert quota.sentence(stop, now) == sentence


def test_who_was_refused_by_somebody_else_names_no_quota():
    assert (
        quota.read('admission webhook "access.gpu-webhook.k8s.io" denied the request: AccessDenied') is None
    )
