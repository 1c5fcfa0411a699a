"""A binary of the user is used only if its version is supported."""

import pytest

from croupier_lab import versions
from croupier_lab.versions import BinaryVersion

OUTPUTS = {
    "etcd": ("etcd Version: 3.6.8\nGit SHA: Not provided\nGo Version: go1.26.8", BinaryVersion(3, 6, 8)),
    "a kube- program": ("Kubernetes v1.36.4\n", BinaryVersion(1, 36, 4)),
    "kubectl": ("Client Version: v1.36.4\nKustomize Version: v5.8.1\n", BinaryVersion(1, 36, 4)),
    "a vendor's kubectl": ("Client Version: v1.32.4-dispatcher\n", BinaryVersion(1, 32, 4)),
    "kwok": ("kwok version v0.8.0 go1.26.8 (linux/amd64)\n", BinaryVersion(0, 8, 0)),
    "containerd": ("containerd github.com/containerd/containerd/v2 2.4.2+unknown", BinaryVersion(2, 4, 2)),
    "a pre-release": ("Kubernetes v1.36.0-rc.1+abc\n", BinaryVersion(1, 36, 0)),
    "nothing": ("", None),
    "an error": ("unknown flag: --version", None),
}


@pytest.mark.parametrize(("printed", "version"), OUTPUTS.values(), ids=OUTPUTS)
def test_reading_a_version(printed, version):
    assert versions.read(printed) == version


SUPPORTED = {
    "the API server of our minor": ("kube-apiserver", BinaryVersion(1, 36, 0), None),
    "an older API server": (
        "kube-apiserver",
        BinaryVersion(1, 35, 9),
        "its version is 1.35.9; the lab needs 1.36.x",
    ),
    "a newer API server": (
        "kube-apiserver",
        BinaryVersion(1, 37, 1),
        "its version is 1.37.1; the lab needs 1.36.x",
    ),
    "a kubelet one behind": (
        "kubelet",
        BinaryVersion(1, 35, 0),
        "its version is 1.35.0; the lab needs 1.36.x",
    ),
    "kubectl one behind": ("kubectl", BinaryVersion(1, 35, 2), None),
    "kubectl one ahead": ("kubectl", BinaryVersion(1, 37, 0), None),
    "kubectl four behind": (
        "kubectl",
        BinaryVersion(1, 32, 4),
        "its version is 1.32.4; the lab needs 1.35 to 1.37",
    ),
    "etcd 3.5": ("etcd", BinaryVersion(3, 5, 21), None),
    "etcd 3.4": ("etcd", BinaryVersion(3, 4, 30), "its version is 3.4.30; the lab needs 3.5 or later"),
    "a KWOK whose stages differ": (
        "kwok",
        BinaryVersion(0, 7, 0),
        "its version is 0.7.0; the lab needs 0.8.x",
    ),
    "containerd without CDI": (
        "containerd",
        BinaryVersion(1, 6, 20),
        "its version is 1.6.20; the lab needs 2.x (CDI)",
    ),
    "silence": ("ctr", None, "its version is unknown; the lab needs 2.x (CDI)"),
}


@pytest.mark.parametrize(("program", "version", "objection"), SUPPORTED.values(), ids=SUPPORTED)
def test_supported_versions(program, version, objection):
    assert versions.objection(program, version) == objection
