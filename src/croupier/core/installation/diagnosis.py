"""Checks of an installation: what is wrong, and what to do about it.

Each check is a function of observed facts and returns problems. An error breaks something now; a warning
will break something or hides a problem; a note needs no action.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from croupier.core.model import name_list
from croupier.core.pods import disabled

Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")

MIN_KUBERNETES: Final = (1, 31)
"""The oldest supported Kubernetes: selectable fields of CRDs and admission policies in the API server."""
MIN_KUBERNETES_FOR_RESIZE: Final = (1, 33)
"""The first Kubernetes that can change the CPU limit of a running pod."""
EXPIRY_WARNING: Final = timedelta(days=7)
HEARTBEAT_TIMEOUT: Final = timedelta(seconds=60)
"""Maximum age of a heartbeat. Every heartbeat is sent at least four times in this time."""
MAX_NAMES: Final = 3
"""How many names a list shows."""

VersionPair: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class InstallationProblem:
    severity: Severity
    what: str
    where: str
    remedy: str


InstallationProblems: TypeAlias = tuple[InstallationProblem, ...]


def needs_action(complaints: Iterable[InstallationProblem]) -> bool:
    """Whether an administrator has to act."""
    return any(complaint.severity != "note" for complaint in complaints)


def as_data(results: Mapping[str, InstallationProblems]) -> dict[str, Any]:
    """The problems by check, as `croupier doctor -o json` prints them."""
    return {
        "healthy": not any(needs_action(problems) for problems in results.values()),
        "checks": list(results),
        "findings": [
            {
                "check": name,
                "severity": problem.severity,
                "where": problem.where,
                "what": problem.what,
                "whatToDo": problem.remedy,
            }
            for name, problems in results.items()
            for problem in problems
        ],
    }


def ordered(complaints: Iterable[InstallationProblem]) -> InstallationProblems:
    """Worst first."""
    return tuple(
        sorted(
            complaints,
            key=lambda complaint: (SEVERITIES.index(complaint.severity), complaint.where, complaint.what),
        )
    )


def join_names(names: Iterable[str]) -> str:
    """`a, b, c and 7 more`."""
    return name_list.named(names, MAX_NAMES)


def check_failed(check: str, why: str) -> InstallationProblem:
    """The check could not run."""
    return InstallationProblem(
        "warning",
        f"the check could not run: {why}",
        check,
        "run croupier doctor with an account that may read this, such as a cluster administrator's",
    )


# Versions


@dataclass(frozen=True, slots=True)
class InstalledVersions:
    server: str
    kubelets: Mapping[str, str] = field(default_factory=dict)
    """Versions of the kubelets of nodes with cards, by node."""
    images: Mapping[str, str] = field(default_factory=dict)
    """The version in the image of each process."""
    ours: str = ""
    moves_limits: bool = False
    """There are pods whose CPU limits are to be changed in place."""


def versions(seen: InstalledVersions) -> InstallationProblems:
    server = parse_version(seen.server)
    if server is None:
        what = f"its version {seen.server!r} cannot be read"
        return (
            InstallationProblem("warning", what, "API server", "see that it is Kubernetes 1.31 or newer"),
        )
    return (*_server(seen, server), *_kubelets(seen, server), *_images(seen))


def parse_version(version: str) -> VersionPair | None:
    """`v1.34.2+k3s1` is 1.34."""
    major, _, rest = version.lstrip("v").partition(".")
    minor = rest.partition(".")[0].rstrip("+")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def _server(seen: InstalledVersions, server: VersionPair) -> Iterator[InstallationProblem]:
    if server < MIN_KUBERNETES:
        what = f"it is {seen.server}, but Croupier's CRDs and policies need {_version_text(MIN_KUBERNETES)}"
        yield InstallationProblem(
            "error", what, "API server", f"upgrade Kubernetes to {_version_text(MIN_KUBERNETES)} or newer"
        )
    elif server < MIN_KUBERNETES_FOR_RESIZE and seen.moves_limits:
        needed = _version_text(MIN_KUBERNETES_FOR_RESIZE)
        what = f"it is {seen.server}: CPU limits of running pods cannot be changed before {needed}"
        remedy = "upgrade Kubernetes, or remove the label mbcas.io/managed from the pods"
        yield InstallationProblem("warning", what, "API server", remedy)


def _kubelets(seen: InstalledVersions, server: VersionPair) -> Iterator[InstallationProblem]:
    read = {node: parse_version(version) for node, version in seen.kubelets.items()}
    if old := [node for node, version in read.items() if version is not None and version < MIN_KUBERNETES]:
        what = f"kubelets older than {_version_text(MIN_KUBERNETES)} do not report all device assignments"
        yield InstallationProblem("warning", what, f"nodes {join_names(old)}", "upgrade these kubelets")
    if ahead := [node for node, version in read.items() if version is not None and version > server]:
        what = f"kubelets newer than the API server ({seen.server}) are not supported by Kubernetes"
        yield InstallationProblem(
            "warning", what, f"nodes {join_names(ahead)}", "upgrade the API server first"
        )


def same_version(images: Iterable[str], ours: str) -> bool:
    """Whether a process has the version of this command, as far as the tags of their images tell."""
    there = {version for version in images if version}
    return not there or ours in there


def _images(seen: InstalledVersions) -> Iterator[InstallationProblem]:
    there = {version for version in seen.images.values() if version}
    if len(there) > 1:
        by_version = {one: join_names(n for n, v in seen.images.items() if v == one) for one in sorted(there)}
        groups = "; ".join(f"{version}: {names}" for version, names in by_version.items())
        what = f"processes of several versions are running: {groups}"
        yield InstallationProblem("warning", what, "processes", "let the upgrade finish, or repeat it")
    elif seen.ours and not same_version(there, seen.ours):
        what = f"the processes have version {min(there)}, this command has {seen.ours}"
        remedy = f"use the command of version {min(there)}: the checks compare with the command's own version"
        yield InstallationProblem("note", what, "processes", remedy)


def _version_text(pair: VersionPair) -> str:
    return f"{pair[0]}.{pair[1]}"


# CRDs


@dataclass(frozen=True, slots=True)
class InstalledCRD:
    spec: Mapping[str, Any]
    established: bool = True


INSTALL_CRDS: Final = "kubectl apply --server-side --force-conflicts -k config/crd/"


def crds(
    wanted: Mapping[str, Mapping[str, Any]], found: Mapping[str, InstalledCRD], *, same_version: bool = True
) -> InstallationProblems:
    """Compare the CRDs of this version with the installed ones.

    Without `same_version` the processes have another version than this command, for example after a rollback:
    only what the API server does not serve is a problem then.
    """
    complaints = []
    for name, spec in wanted.items():
        there, where = found.get(name), f"CRD {name}"
        if there is None and not same_version:
            remedy = "compare with the command of the version of the processes, which may not have this CRD"
            complaints.append(InstallationProblem("note", "the CRD is not installed", where, remedy))
        elif there is None:
            complaints.append(InstallationProblem("error", "the CRD is not installed", where, INSTALL_CRDS))
        elif not there.established:
            remedy = f"see kubectl describe crd {name}; another CRD may use one of its names"
            complaints.append(
                InstallationProblem("error", "the API server does not serve the CRD", where, remedy)
            )
        elif same_version and (other := list(differences(spec, there.spec))):
            what = f"it differs from the CRD of this command's version: {join_names(other)}"
            complaints.append(InstallationProblem("warning", what, where, INSTALL_CRDS))
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


def without_heartbeat(lives: Mapping[str, datetime | None], now: datetime) -> dict[str, str]:
    """Names without a recent heartbeat: `for 90 s`, or `yet`. Clocks may differ by a minute."""
    ages = {name: None if seen is None else now - seen for name, seen in lives.items()}
    since = {name: "yet" if age is None else f"for {_age(age)}" for name, age in ages.items()}
    return {name: since[name] for name, age in ages.items() if age is None or age > HEARTBEAT_TIMEOUT}


def clock_ahead(lives: Mapping[str, datetime | None], now: datetime) -> list[str]:
    """Names whose clock is ahead of ours by more than the maximum age of a heartbeat."""
    return [name for name, seen in lives.items() if seen is not None and seen - now > HEARTBEAT_TIMEOUT]


def _age(age: timedelta) -> str:
    seconds = int(age.total_seconds())
    return f"{seconds} s" if seconds < 600 else f"{seconds // 60} min"


def agents(
    lives: Mapping[str, datetime | None],
    told_silent: Mapping[str, str],
    now: datetime,
    *,
    namespace: str,
) -> InstallationProblems:
    """The agents of nodes with cards: by their Leases, and by the conditions of the inventory."""
    quiet = {node: f"no heartbeat {since}" for node, since in without_heartbeat(lives, now).items()}
    complaints = [
        InstallationProblem(
            "error",
            f"its agent is not responding: {quiet.get(node) or told_silent[node]};"
            " no new pods get cards on this node",
            f"node {node}",
            f"kubectl -n {namespace} get pods -l app=croupier-node --field-selector spec.nodeName={node}",
        )
        for node in sorted({*quiet, *told_silent})
    ]
    if fast := clock_ahead(lives, now):
        remedy = "synchronize the clocks; ages in this report are wrong by the difference"
        complaints.append(
            InstallationProblem(
                "warning", "their clocks are ahead of this machine's", f"nodes {join_names(fast)}", remedy
            )
        )
    return tuple(complaints)


def markets(lives: Mapping[str, datetime | None], now: datetime) -> InstallationProblems:
    """The market agents, which change CPU limits."""
    return tuple(
        InstallationProblem(
            "warning",
            f"its CPU market agent is not responding: no heartbeat {since}; original limits are restored",
            f"node {node}",
            f"see the croupier-market pod on {node} and its log",
        )
        for node, since in sorted(without_heartbeat(lives, now).items())
    )


def skipped(check: str) -> InstallationProblem:
    """The check is skipped because Croupier is disabled."""
    what = f"skipped: {disabled.DISABLED}"
    return InstallationProblem("note", what, check, "run the check again when it is enabled")
