"""Tests are skipped if they would change or delete objects of a shared cluster."""

from croupier.api import crds
from croupier_lab import shared_cluster

POOL = "crd/gpupools.gpu.deckhouse.io"
CARD = "apiVersion: gpu.deckhouse.io/v1alpha1\nkind: GPUDevice\nmetadata: {name: theirs}\n"


async def test_other_versions_of_the_crds_are_not_replaced(private_lab):
    lab = await private_lab()
    definitions = crds.definitions()
    assert shared_cluster.crd_conflict(lab.cluster, definitions) is None, "no CRDs are installed"

    shared_cluster.install(lab.cluster, definitions)
    assert shared_cluster.crd_conflict(lab.cluster, definitions) is None, "the same CRDs are installed"

    lab.kubectl("patch", POOL, "--type=merge", '--patch={"spec": {"names": {"shortNames": ["older"]}}}')
    reason = shared_cluster.crd_conflict(lab.cluster, definitions)
    assert reason is not None
    assert "kubectl apply -k config/crd/" in reason


async def test_kubectl_knows_the_kinds_as_soon_as_they_are_installed(private_lab):
    lab = await private_lab()
    assert lab.kubectl("get", "croupier", check=False).returncode != 0, "now it remembers that there are none"

    shared_cluster.install(lab.cluster, crds.definitions())

    assert lab.kubectl("get", "croupier").returncode == 0


async def test_existing_objects_are_detected(private_lab):
    lab = await private_lab()
    definitions = crds.definitions()
    shared_cluster.install(lab.cluster, definitions)
    kinds = shared_cluster.cluster_scoped(definitions)
    assert shared_cluster.existing_objects(lab.cluster, kinds) is None

    lab.kubectl("apply", "-f", "-", stdin=CARD)
    reason = shared_cluster.existing_objects(lab.cluster, kinds)
    assert reason is not None
    assert "gpudevices/theirs exists" in reason
