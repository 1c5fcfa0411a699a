"""Whose process runs on a card: the UID of its pod by its cgroup, or the name of a process of the node.

The kubelet names a pod's cgroup by its UID, with '_' for '-' if the driver is systemd. The paths are relative
to the reader's cgroup namespace, but always contain the name of the pod's cgroup.
"""

import re
from pathlib import Path
from typing import Final

_POD: Final = re.compile(
    r"(?:^|[/-])pod([0-9a-f]{8}([-_]?)[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{4}\2[0-9a-f]{12})(?:\.slice)?(?=/|$)",
    re.MULTILINE,
)
"""The UID of a static pod has no separators."""


def pod_uid(cgroups: str) -> str:
    """The UID of the pod in the content of /proc/<pid>/cgroup. Empty if the process is in no pod."""
    match = _POD.search(cgroups)
    return match[1].replace("_", "-") if match is not None else ""


def owner(proc: Path, pid: int) -> str:
    """The UID of the pod of the process, else the name of the process. Empty if it has ended."""
    try:
        uid = pod_uid((proc / str(pid) / "cgroup").read_text())
        return uid or (proc / str(pid) / "comm").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
