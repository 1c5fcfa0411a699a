"""The quota that blocks a pod is named with its current figures."""

import pytest

from croupier.core import quantity
from croupier.core.pods import quota
from croupier.core.pods.quota import QuotaRefusal, QuotaUsage

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


def limits(hard: dict[str, int], used: dict[str, int]) -> QuotaUsage:
    return QuotaUsage(*({name: quantity.parse(str(n)) for name, n in part.items()} for part in (hard, used)))


SAID = {
    "with the figures of the refusal": (
        TOLD,
        limits({GPUS: 4}, {GPUS: 3}),
        "ResourceQuota cards blocks the pod: it asks for 2 of nvidia.com/gpu, and 3 of 4 are used",
    ),
    "with the current figures": (
        TOLD,
        limits({GPUS: 4}, {GPUS: 4}),
        "ResourceQuota cards blocks the pod: it asks for 2 of nvidia.com/gpu, and 4 of 4 are used",
    ),
    "two resources, both exceeded": (
        TWICE,
        limits({GPUS: 4, POOLED: 8}, {GPUS: 3, POOLED: 8}),
        "ResourceQuota both blocks the pod: it asks for 1 of gpu.deckhouse.io/team-a, and 8 of 8 are used "
        "and it asks for 2 of nvidia.com/gpu, and 3 of 4 are used",
    ),
    "two resources, one exceeded now": (
        TWICE,
        limits({GPUS: 4, POOLED: 9}, {GPUS: 3, POOLED: 8}),
        "ResourceQuota both blocks the pod: it asks for 2 of nvidia.com/gpu, and 3 of 4 are used",
    ),
    "enough left now": (
        TOLD,
        limits({GPUS: 5}, {GPUS: 3}),
        "ResourceQuota cards blocked the pod and has enough left now: "
        "the pod is created when its owner retries",
    ),
    "quota does not exist any more": (
        TOLD,
        None,
        "ResourceQuota cards blocked the pod and does not exist any more: "
        "the pod is created when its owner retries",
    ),
    "resources that must be specified": (
        "failed quota: cpu: must specify requests.cpu for: main",
        limits({}, {}),
        "ResourceQuota cpu blocks the pod: it must specify requests.cpu for: main",
    ),
}


@pytest.mark.parametrize(("refusal", "now", "sentence"), SAID.values(), ids=SAID)
def test_sentences(refusal, now, sentence):
    stop = quota.read(refusal)

    assert isinstance(stop, QuotaRefusal)
    assert quota.sentence(stop, now) == sentence


def test_other_refusals_name_no_quota():
    assert (
        quota.read('admission webhook "access.gpu-webhook.k8s.io" denied the request: AccessDenied') is None
    )
