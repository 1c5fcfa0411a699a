"""The effective request of a pod is the amount that the scheduler and the kubelet reserve."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core import quantity
from croupier.core.pods import effective_requests
from croupier.core.pods.effective_requests import Amounts, InitContainerRequest, PodResourceSpec
from croupier.core.quantity import NANO, ZERO, Quantity

GPU = "nvidia.com/gpu"


def gpus(count: int | str) -> Amounts:
    return {GPU: quantity.parse(str(count))}


def init(count: int) -> InitContainerRequest:
    return InitContainerRequest(gpus(count))


def sidecar(count: int) -> InitContainerRequest:
    return InitContainerRequest(gpus(count), sidecar=True)


COUNTED = {
    "nothing": (PodResourceSpec(), 0),
    "one container": (PodResourceSpec([gpus(2)]), 2),
    "containers add up": (PodResourceSpec([gpus(1), gpus(2)]), 3),
    "of init containers the largest counts": (PodResourceSpec([gpus(1)], [init(4), init(2)]), 4),
    "a small init container costs nothing": (PodResourceSpec([gpus(3)], [init(2)]), 3),
    "a sidecar is added to the containers": (PodResourceSpec([gpus(1)], [sidecar(2)]), 3),
    "an init container is added to the sidecars before it": (
        PodResourceSpec([gpus(1)], [sidecar(1), init(3)]),
        4,
    ),
    "but not to the sidecars after it": (PodResourceSpec([gpus(1)], [init(3), sidecar(1)]), 3),
    "sidecars add up as they start": (PodResourceSpec([], [sidecar(1), sidecar(2), init(1)]), 4),
    "overhead is added": (PodResourceSpec([gpus(1)], [init(4)], overhead=gpus(1)), 5),
    "devices cannot be requested at pod level": (PodResourceSpec([gpus(1)], pod_level=gpus(7)), 1),
}


@pytest.mark.parametrize(("pod", "count"), COUNTED.values(), ids=COUNTED)
def test_effective_requests(pod, count):
    assert effective_requests.effective(pod).get(GPU, ZERO).whole == count


def test_pod_level_requests_replace_those_of_the_containers():
    cpu, two, three = "cpu", quantity.parse("2"), quantity.parse("3")
    pod = PodResourceSpec(
        [{cpu: two}],
        [InitContainerRequest({cpu: three})],
        overhead={cpu: quantity.parse("1")},
        pod_level={cpu: two},
    )

    assert effective_requests.effective(pod) == {cpu: three}


def test_fractions_stay_exact():
    pod = PodResourceSpec([{"cpu": quantity.parse("100m")}] * 3)

    assert effective_requests.effective(pod) == {"cpu": quantity.parse("300m")}


AMOUNTS = st.dictionaries(
    st.sampled_from([GPU, "cpu", "memory"]), st.integers(0, 5 * NANO).map(Quantity), max_size=3
)
PODS = st.builds(
    PodResourceSpec,
    st.lists(AMOUNTS, max_size=4),
    st.lists(st.builds(InitContainerRequest, AMOUNTS, st.booleans()), max_size=4),
    AMOUNTS,
)


@given(PODS)
def test_it_is_the_maximum_that_runs_at_once(pod):
    """Simulates the start of all init containers and then the containers, and takes the maximum."""
    for name in (GPU, "cpu", "memory"):
        kept, pictures = 0, [0]
        for early in pod.init_containers:
            now = early.amounts.get(name, ZERO).nanos
            pictures.append(kept + now)
            kept += now if early.sidecar else 0
        pictures.append(kept + sum(container.get(name, ZERO).nanos for container in pod.containers))

        counted = effective_requests.effective(pod).get(name, ZERO).nanos
        assert counted == max(pictures) + pod.overhead.get(name, ZERO).nanos


@given(PODS)
def test_zero_amounts_are_left_out(pod):
    assert all(effective_requests.effective(pod).values())
