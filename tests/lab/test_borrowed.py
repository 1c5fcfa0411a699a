"""Tests are skipped if they would change or delete objects of a shared cluster."""

from croupier.api import crds
from croupier.lab import borrowed

POOL = "crd/gpupools.gpu.deckhouse.io"
CARD = "apiVersion: gpu.deckhouse.io/v1alpha1\nkind: GPUDevice\nmetadata: {name: theirs}\n"


async def test_other_versions_of_the_crds_are_not_replaced(private_lab):
    lab = await private_lab()
    definitions = crds.definitions()
    assert borrowed.contradiction(lab.cluster, definitions) is None, "no CRDs are installed"

    borrowed.install(lab.cluster, definitions)
    assert borrowed.contradiction(lab.cluster, definitions) is None, "the same CRDs are installed"

    lab.kubectl("patch", POOL, "--type=merge", '--patch={"spec": {"names": {"shortNames": ["older"]}}}')
    reason = borrowed.contradiction(lab.cluster, definitions)
    assert reason is not None
    assert "kubectl apply -k config/crd/" in reason


async def test_existing_objects_are_detected(private_lab):
    lab = await private_lab()
    definitions = crds.definitions()
    borrowed.install(lab.cluster, definitions)
    kinds = borrowed.cluster_scoped(definitions)
    assert borrowed.occupation(lab.cluster, kinds) is None

    lab.kubectl("apply", "-f", "-", stdin=CARD)
    reason = borrowed.occupation(lab.cluster, kinds)
    assert reason is not None
    assert "gpudevice.gpu.deckhouse.io/theirs exists" in reason
