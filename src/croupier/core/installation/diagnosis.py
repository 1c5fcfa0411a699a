"""Checks of an installation: what is wrong, and what to do about it.

Each check is a function of observed facts and returns problems. An error breaks something now; a warning
will break something or hides a problem; a note needs no action.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")

OLDEST: Final = (1, 31)
"""The oldest supported Kubernetes: selectable fields of CRDs and admission policies in the API server."""
RESIZES: Final = (1, 33)
"""The first Kubernetes that can change the CPU limit of a running pod."""
ENDS_SOON: Final = timedelta(days=7)
SILENT: Final = timedelta(seconds=60)
"""Maximum age of a heartbeat. Every heartbeat is sent at least four times in this time."""
NAMED: Final = 3
"""How many names a list shows."""

Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Complaint:
    severity: Severity
    what: str
    where: str
    remedy: str


Complaints: TypeAlias = tuple[Complaint, ...]


def sick(complaints: Iterable[Complaint]) -> bool:
    """Whether an administrator has to act."""
    return any(complaint.severity != "note" for complaint in complaints)


def ordered(complaints: Iterable[Complaint]) -> Complaints:
    """Worst first."""
    return tuple(
        sorted(
            complaints,
            key=lambda complaint: (SEVERITIES.index(complaint.severity), complaint.where, complaint.what),
        )
    )


def named(names: Iterable[str]) -> str:
    """`a, b, c and 7 more`."""
    all_names = sorted(names)
    more = len(all_names) - NAMED
    return ", ".join(all_names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def unseen(check: str, why: str) -> Complaint:
    """The check could not run."""
    return Complaint(
        "warning",
        f"the check could not run: {why}",
        check,
        "run croupier doctor with an account that may read this, such as a cluster administrator's",
    )


# Versions


@dataclass(frozen=True, slots=True)
class Versions:
    server: str
    kubelets: Mapping[str, str] = field(default_factory=dict)
    """Versions of the kubelets of nodes with cards, by node."""
    images: Mapping[str, str] = field(default_factory=dict)
    """The version in the image of each process."""
    ours: str = ""
    moves_limits: bool = False
    """There are pods whose CPU limits are to be changed in place."""


def versions(seen: Versions) -> Complaints:
    server = number(seen.server)
    if server is None:
        what = f"its version {seen.server!r} cannot be read"
        return (Complaint("warning", what, "API server", "see that it is Kubernetes 1.31 or newer"),)
    return (*_server(seen, server), *_kubelets(seen, server), *_images(seen))


def number(version: str) -> Pair | None:
    """`v1.34.2+k3s1` is 1.34."""
    major, _, rest = version.lstrip("v").partition(".")
    minor = rest.partition(".")[0].rstrip("+")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def _server(seen: Versions, server: Pair) -> Iterator[Complaint]:
    if server < OLDEST:
        what = f"it is {seen.server}, but Croupier's CRDs and policies need {_spelled(OLDEST)}"
        yield Complaint("error", what, "API server", f"upgrade Kubernetes to {_spelled(OLDEST)} or newer")
    elif server < RESIZES and seen.moves_limits:
        what = f"it is {seen.server}: CPU limits of running pods cannot be changed before {_spelled(RESIZES)}"
        remedy = "upgrade Kubernetes, or remove the label mbcas.io/managed from the pods"
        yield Complaint("warning", what, "API server", remedy)


def _kubelets(seen: Versions, server: Pair) -> Iterator[Complaint]:
    read = {node: number(version) for node, version in seen.kubelets.items()}
    if old := [node for node, version in read.items() if version is not None and version < OLDEST]:
        what = f"kubelets older than {_spelled(OLDEST)} do not report all device assignments"
        yield Complaint("warning", what, f"nodes {named(old)}", "upgrade these kubelets")
    if ahead := [node for node, version in read.items() if version is not None and version > server]:
        what = f"kubelets newer than the API server ({seen.server}) are not supported by Kubernetes"
        yield Complaint("warning", what, f"nodes {named(ahead)}", "upgrade the API server first")


def _images(seen: Versions) -> Iterator[Complaint]:
    there = {version for version in seen.images.values() if version}
    if len(there) > 1:
        by_version = {one: named(n for n, v in seen.images.items() if v == one) for one in sorted(there)}
        groups = "; ".join(f"{version}: {names}" for version, names in by_version.items())
        what = f"processes of several versions are running: {groups}"
        yield Complaint("warning", what, "processes", "let the upgrade finish, or repeat it")
    elif seen.ours and there and seen.ours not in there:
        what = f"the processes have version {min(there)}, this command has {seen.ours}"
        remedy = f"use the command of version {min(there)}: the checks compare with the command's own version"
        yield Complaint("note", what, "processes", remedy)


def _spelled(pair: Pair) -> str:
    return f"{pair[0]}.{pair[1]}"


# CRDs


@dataclass(frozen=True, slots=True)
class Definition:
    spec: Mapping[str, Any]
    established: bool = True


INSTALL_KINDS: Final = "kubectl apply --server-side --force-conflicts -k config/crd/"


def definitions(wanted: Mapping[str, Mapping[str, Any]], found: Mapping[str, Definition]) -> Complaints:
    """Compare the CRDs of this version with the installed ones."""
    complaints = []
    for name, spec in wanted.items():
        there, where = found.get(name), f"CRD {name}"
        if there is None:
            complaints.append(Complaint("error", "the CRD is not installed", where, INSTALL_KINDS))
        elif not there.established:
            remedy = f"see kubectl describe crd {name}; another CRD may use one of its names"
            complaints.append(Complaint("error", "the API server does not serve the CRD", where, remedy))
        elif other := list(differences(spec, there.spec)):
            what = f"it differs from the CRD of this command's version: {named(other)}"
            complaints.append(Complaint("warning", what, where, INSTALL_KINDS))
    return tuple(complaints)


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Paths at which `found` differs from `wanted`; fields added by the API server are ignored."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for name, value in wanted.items():
            inside = f"{path}.{name}".lstrip(".")
            if name in found:
                yield from differences(value, found[name], inside)
            else:
                yield f"{inside} is missing"
        if path.endswith("properties"):
            yield from (f"{path}.{name} is not known" for name in found.keys() - wanted.keys())
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for place, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from differences(one, other, f"{path}[{place}]")
    elif wanted != found:
        yield f"{path} differs"


# Heartbeats


def silent(lives: Mapping[str, datetime | None], now: datetime) -> dict[str, str]:
    """Names without a recent heartbeat, and since when; clocks may differ by a minute."""
    ages = {name: None if seen is None else now - seen for name, seen in lives.items()}
    since = {name: "never" if age is None else f"for {_age(age)}" for name, age in ages.items()}
    return {name: since[name] for name, age in ages.items() if age is None or age > SILENT}


def ahead(lives: Mapping[str, datetime | None], now: datetime) -> list[str]:
    """Names whose clock is ahead of ours by more than the maximum age of a heartbeat."""
    return [name for name, seen in lives.items() if seen is not None and seen - now > SILENT]


def _age(age: timedelta) -> str:
    seconds = int(age.total_seconds())
    return f"{seconds} s" if seconds < 600 else f"{seconds // 60} min"


def agents(lives: Mapping[str, datetime | None], told_silent: Mapping[str, str], now: datetime) -> Complaints:
    """The agents of nodes with cards: by their Leases, and by the conditions of the inventory."""
    quiet = {node: f"no heartbeat {since}" for node, since in silent(lives, now).items()}
    complaints = [
        Complaint(
            "error",
            f"its agent is not responding: {quiet.get(node) or told_silent[node]};"
            " no new pods get cards on this node",
            f"node {node}",
            f"kubectl -n d8-gpu-operator get pods -l app=croupier-node --field-selector spec.nodeName={node}",
        )
        for node in sorted({*quiet, *told_silent})
    ]
    if fast := ahead(lives, now):
        remedy = "synchronize the clocks; ages in this report are wrong by the difference"
        complaints.append(
            Complaint("warning", "their clocks are ahead of this machine's", f"nodes {named(fast)}", remedy)
        )
    return tuple(complaints)


def markets(lives: Mapping[str, datetime | None], now: datetime) -> Complaints:
    """The market agents, which change CPU limits."""
    return tuple(
        Complaint(
            "warning",
            f"its CPU market agent is not responding: no heartbeat {since}; original limits are restored",
            f"node {node}",
            f"see the croupier-market pod on {node} and its log",
        )
        for node, since in sorted(silent(lives, now).items())
    )


def resting(check: str) -> Complaint:
    """The check is skipped because Croupier is disabled."""
    what = "skipped: Croupier is disabled (spec.enabled of ModuleConfig gpu-operator is false)"
    return Complaint("note", what, check, "run the check again when it is enabled")


# Processes


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    wanted: int
    ready: int


def processes(workloads: Sequence[Workload], namespace: str) -> Complaints:
    if not workloads:
        what = "Croupier is not installed in this namespace"
        remedy = "install it (helm install croupier charts/croupier), or set --namespace"
        return (Complaint("error", what, f"namespace {namespace}", remedy),)
    unready = (
        Complaint(
            "error" if workload.ready == 0 else "warning",
            f"{workload.ready} of {workload.wanted} are ready",
            workload.name,
            f"kubectl -n {namespace} describe {workload.name}, and the logs of its pods",
        )
        for workload in workloads
        if workload.ready < workload.wanted
    )
    return (*unready, *_switched_off(workloads, namespace))


def _switched_off(workloads: Sequence[Workload], namespace: str) -> Iterator[Complaint]:
    """Deployments that are scaled to 0. A DaemonSet may have no pods because no node matches."""
    for workload in workloads:
        if workload.wanted == 0 and workload.name.startswith("deployment/"):
            what = "it is scaled to 0, so it does not run"
            remedy = f"kubectl -n {namespace} scale {workload.name} --replicas=1"
            yield Complaint("error", what, workload.name, remedy)
