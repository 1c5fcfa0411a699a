"""The pinned upstream modules of the lab's binaries.

The go.mod and go.sum files in `modules/` contain versions and checksums, but no Go code. The cache folder
of a binary is named by the digest of these files, the build flags and the platform.
"""

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "modules"


@dataclass(frozen=True, slots=True)
class Module:
    """A folder with go.mod and go.sum, and the binaries built from it."""

    name: str
    version: str
    programs: Mapping[str, str]
    flags: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return MODULES / self.name


_VERSION = "k8s.io/component-base/version"

KUBERNETES = Module(
    name="kubernetes",
    version="v1.36.4",
    programs={
        "etcd": "go.etcd.io/etcd/server/v3",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
        "kwok": "sigs.k8s.io/kwok/cmd/kwok",
        "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    },
    flags=(
        "-trimpath",
        # Without these the API server reports v0.0.0.
        f"-ldflags=-s -w -X {_VERSION}.gitVersion=v1.36.4 -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36",
    ),
)

_CONTAINERD = "github.com/containerd/containerd/v2"

CONTAINERD = Module(
    name="containerd",
    version="v2.4.2",
    programs={
        "containerd": f"{_CONTAINERD}/cmd/containerd",
        "containerd-shim-runc-v2": f"{_CONTAINERD}/cmd/containerd-shim-runc-v2",
        "ctr": f"{_CONTAINERD}/cmd/ctr",
    },
    flags=(
        "-trimpath",
        "-ldflags=-s -w",
        "-tags=no_btrfs no_devmapper no_zfs",
    ),
)

_HELM = "helm.sh/helm/v3"

HELM = Module(
    name="helm",
    version="v3.22.0",
    programs={"helm": f"{_HELM}/cmd/helm"},
    flags=(
        "-trimpath",
        # Without these it reports v3.22 and assumes Kubernetes 1.20 when it has no cluster.
        f"-ldflags=-s -w -X {_HELM}/internal/version.version=v3.22.0"
        f" -X {_HELM}/pkg/chartutil.k8sVersionMajor=1 -X {_HELM}/pkg/chartutil.k8sVersionMinor=36"
        f" -X {_HELM}/pkg/lint/rules.k8sVersionMajor=1 -X {_HELM}/pkg/lint/rules.k8sVersionMinor=36",
    ),
)

MODULES_IN_ORDER = (KUBERNETES, CONTAINERD, HELM)
MODULE_OF = {program: module for module in MODULES_IN_ORDER for program in module.programs}

CONTROL_PLANE_PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kwok",
)
REAL_NODE_PROGRAMS = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr")
HELM_PROGRAMS = ("helm",)
"""Needed only to install the chart."""

KWOK_MODULE = "sigs.k8s.io/kwok"
NODE_STAGES = (
    "kustomize/stage/node/fast/node-initialize.yaml",
    "kustomize/stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
)
POD_STAGES = (
    "kustomize/stage/pod/fast/pod-ready.yaml",
    "kustomize/stage/pod/fast/pod-complete.yaml",
    "kustomize/stage/pod/fast/pod-delete.yaml",
)


def digest(module: Module, *, machine: str = "") -> str:
    """Digest of the inputs of a build, twelve hexadecimal digits."""
    content = hashlib.sha256()
    for file in ("go.mod", "go.sum"):
        content.update((module.folder / file).read_bytes())
    content.update("\0".join((*module.flags, machine or _machine())).encode())
    return content.hexdigest()[:12]


def folder(module: Module, cache: Path) -> Path:
    """Cache folder of the binaries of `module`."""
    return cache / f"{module.name}-{module.version}-{digest(module)}"


def _machine() -> str:
    return f"{platform.system()}/{platform.machine()}".lower()
