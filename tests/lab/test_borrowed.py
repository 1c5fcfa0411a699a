"""Tests do not change somebody else's cluster: where they would, they say so and do not run."""

from croupier.api import crds
from croupier.lab import borrowed

POOL = "crd/gpupools.gpu.deckhouse.io"
CARD = "apiVersion: gpu.deckhouse.io/v1alpha1\nkind: GPUDevice\nmetadata: {name: theirs}\n"


async def test_other_versions_of_our_kinds_are_not_replaced(private_lab):
    lab = await private_lab()
    ours = crds.definitions()
    assert borrowed.contradiction(lab.cluster, ours) is None, "nothing there, nothing to contradict"

    borrowed.install(lab.cluster, ours)
    assert borrowed.contradiction(lab.cluster, ours) is None, "the very same is there"

    lab.kubectl("patch", POOL, "--type=merge", '--patch={"spec": {"names": {"shortNames": ["older"]}}}')
    reason = borrowed.contradiction(lab.cluster, ours)
    assert reason is not None
    assert "kubectl apply -k config/crd/" in reason


async def test_where_others_use_our_kinds_their_objects_are_safe(private_lab):
    lab = await private_lab()
    ours = crds.definitions()
    borrowed.install(lab.cluster, ours)
    kinds = borrowed.cluster_scoped(ours)
    assert borrowed.occupation(lab.cluster, kinds) is None

    lab.kubectl("apply", "-f", "-", stdin=CARD)
    reason = borrowed.occupation(lab.cluster, kinds)
    assert reason is not None
    assert "gpudevice.gpu.deckhouse.io/theirs exists" in reason
