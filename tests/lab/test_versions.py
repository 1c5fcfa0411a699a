"""A binary of the user is used only if its version is supported."""

import pytest

from croupier.lab import versions
from croupier.lab.versions import Version

OUTPUTS = {
    "etcd": ("etcd Version: 3.6.8\nGit SHA: Not provided\nGo Version: go1.26.8", Version(3, 6, 8)),
    "a kube- program": ("Kubernetes v1.36.4\n", Version(1, 36, 4)),
    "kubectl": ("Client Version: v1.36.4\nKustomize Version: v5.8.1\n", Version(1, 36, 4)),
    "a vendor's kubectl": ("Client Version: v1.32.4-dispatcher\n", Version(1, 32, 4)),
    "kwok": ("kwok version v0.8.0 go1.26.8 (linux/amd64)\n", Version(0, 8, 0)),
    "containerd": ("containerd github.com/containerd/containerd/v2 2.4.2+unknown", Version(2, 4, 2)),
    "a pre-release": ("Kubernetes v1.36.0-rc.1+abc\n", Version(1, 36, 0)),
    "nothing": ("", None),
    "an error": ("unknown flag: --version", None),
}


@pytest.mark.parametrize(("printed", "version"), OUTPUTS.values(), ids=OUTPUTS)
def test_reading_a_version(printed, version):
    assert versions.read(printed) == version


SUPPORTED = {
    "the API server of our minor": ("kube-apiserver", Version(1, 36, 0), None),
    "an older API server": (
        "kube-apiserver",
        Version(1, 35, 9),
        "its version is 1.35.9; the lab needs 1.36.x",
    ),
    "a newer API server": (
        "kube-apiserver",
        Version(1, 37, 1),
        "its version is 1.37.1; the lab needs 1.36.x",
    ),
    "a kubelet one behind": ("kubelet", Version(1, 35, 0), "its version is 1.35.0; the lab needs 1.36.x"),
    "kubectl one behind": ("kubectl", Version(1, 35, 2), None),
    "kubectl one ahead": ("kubectl", Version(1, 37, 0), None),
    "kubectl four behind": (
        "kubectl",
        Version(1, 32, 4),
        "its version is 1.32.4; the lab needs 1.35 to 1.37",
    ),
    "etcd 3.5": ("etcd", Version(3, 5, 21), None),
    "etcd 3.4": ("etcd", Version(3, 4, 30), "its version is 3.4.30; the lab needs 3.5 or later"),
    "a KWOK whose stages differ": ("kwok", Version(0, 7, 0), "its version is 0.7.0; the lab needs 0.8.x"),
    "containerd without CDI": (
        "containerd",
        Version(1, 6, 20),
        "its version is 1.6.20; the lab needs 2.x (CDI)",
    ),
    "silence": ("ctr", None, "its version is unknown; the lab needs 2.x (CDI)"),
}


@pytest.mark.parametrize(("program", "version", "objection"), SUPPORTED.values(), ids=SUPPORTED)
def test_supported_versions(program, version, objection):
    assert versions.objection(program, version) == objection
