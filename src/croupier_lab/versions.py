"""Version requirements of the lab's binaries; binaries with other versions are rejected with a reason."""

import re
from dataclasses import dataclass

KUBERNETES = (1, 36)
_NUMBER = re.compile(r"\bv?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class BinaryVersion:
    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


@dataclass(frozen=True, slots=True)
class VersionRule:
    """The version option of a binary, and the supported range of (major, minor)."""

    lowest: tuple[int, int]
    highest: tuple[int, int]
    wanted: str
    question: tuple[str, ...] = ("--version",)


_MAJOR, _MINOR = KUBERNETES
_SAME_MINOR = VersionRule(KUBERNETES, KUBERNETES, f"{_MAJOR}.{_MINOR}.x")
_CONTAINERD = VersionRule((2, 0), (2, 99), "2.x (CDI)")

RULES = {
    "etcd": VersionRule((3, 5), (3, 99), "3.5 or later"),
    "kube-apiserver": _SAME_MINOR,
    "kube-controller-manager": _SAME_MINOR,
    "kube-scheduler": _SAME_MINOR,
    "kubelet": _SAME_MINOR,
    "kubectl": VersionRule(
        (_MAJOR, _MINOR - 1),
        (_MAJOR, _MINOR + 1),
        f"{_MAJOR}.{_MINOR - 1} to {_MAJOR}.{_MINOR + 1}",
        ("version", "--client"),
    ),
    "kwok": VersionRule((0, 8), (0, 8), "0.8.x"),
    "containerd": _CONTAINERD,
    "containerd-shim-runc-v2": VersionRule((2, 0), (2, 99), "2.x (CDI)", ("-v",)),
    "ctr": _CONTAINERD,
    "helm": VersionRule((3, 14), (4, 99), "3.14 or later", ("version", "--short")),
}


def read(output: str) -> BinaryVersion | None:
    """The first version number in the output of a binary."""
    found = _NUMBER.search(output)
    return BinaryVersion(*map(int, found.groups())) if found else None


def objection(program: str, version: BinaryVersion | None) -> str | None:
    """Why this version cannot be used; None if it can."""
    rule = RULES[program]
    if version is None:
        return f"its version is unknown; the lab needs {rule.wanted}"
    if rule.lowest <= (version.major, version.minor) <= rule.highest:
        return None
    return f"its version is {version}; the lab needs {rule.wanted}"
