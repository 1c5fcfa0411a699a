"""What is wrong with an installation, told so that a person knows what to do next.

Each check is a function of what was seen; it answers with complaints, worst first. An error keeps something
from working now, a warning will, or hides something; a note is worth knowing and needs no hurry.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "note"]
SEVERITIES: Final[tuple[Severity, ...]] = ("error", "warning", "note")

OLDEST: Final = (1, 31)
"""Kubernetes as old as this knows all we use: fields to select by in CRDs, policies inside the API server."""
RESIZES: Final = (1, 33)
"""From here on the CPU limit of a running pod can be moved."""
ENDS_SOON: Final = timedelta(days=7)
SILENT: Final = timedelta(seconds=60)
"""Every sign of life comes at least four times in this time."""
NAMED: Final = 3
"""Of many of a kind so many are named."""

Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Complaint:
    severity: Severity
    what: str
    where: str
    remedy: str


Complaints: TypeAlias = tuple[Complaint, ...]


def sick(complaints: Iterable[Complaint]) -> bool:
    """Whether somebody has to do something."""
    return any(one.severity != "note" for one in complaints)


def ordered(complaints: Iterable[Complaint]) -> Complaints:
    return tuple(sorted(complaints, key=lambda one: (SEVERITIES.index(one.severity), one.where, one.what)))


def named(names: Iterable[str]) -> str:
    """`a, b, c and 7 more`."""
    told = sorted(names)
    more = len(told) - NAMED
    return ", ".join(told[:NAMED]) + (f" and {more} more" if more > 0 else "")


def unseen(check: str, why: str) -> Complaint:
    """A check that could not look has found nothing, and that is no good news."""
    return Complaint(
        "warning",
        f"could not look: {why}",
        check,
        "run croupier doctor with an account that may read this, such as a cluster administrator's",
    )


# Versions


@dataclass(frozen=True, slots=True)
class Versions:
    server: str
    kubelets: Mapping[str, str] = field(default_factory=dict)
    """Of nodes with cards."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Process to the version its image names."""
    ours: str = ""
    moves_limits: bool = False
    """Somebody wants CPU limits moved."""


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
        what = f"it is {seen.server}, and our kinds and policies need {_spelled(OLDEST)}"
        yield Complaint("error", what, "API server", f"upgrade Kubernetes to {_spelled(OLDEST)} or newer")
    elif server < RESIZES and seen.moves_limits:
        what = f"it is {seen.server}: CPU limits of running pods cannot be moved before {_spelled(RESIZES)}"
        remedy = "upgrade Kubernetes, or take the label mbcas.io/managed from the pods"
        yield Complaint("warning", what, "API server", remedy)


def _kubelets(seen: Versions, server: Pair) -> Iterator[Complaint]:
    read = {node: number(version) for node, version in seen.kubelets.items()}
    if old := [node for node, one in read.items() if one is not None and one < OLDEST]:
        what = f"kubelets older than {_spelled(OLDEST)} do not tell all about devices"
        yield Complaint("warning", what, f"nodes {named(old)}", "upgrade these kubelets")
    if ahead := [node for node, one in read.items() if one is not None and one > server]:
        what = f"kubelets newer than the API server ({seen.server}) are not supported by Kubernetes"
        yield Complaint("warning", what, f"nodes {named(ahead)}", "upgrade the API server first")


def _images(seen: Versions) -> Iterator[Complaint]:
    there = {version for version in seen.images.values() if version}
    if len(there) > 1:
        by_version = {one: named(n for n, v in seen.images.items() if v == one) for one in sorted(there)}
        told = "; ".join(f"{version}: {names}" for version, names in by_version.items())
        what = f"processes of several versions run: {told}"
        yield Complaint("warning", what, "processes", "let the upgrade finish, or repeat it")
    elif seen.ours and there and seen.ours not in there:
        what = f"the processes are of version {min(there)}, this command of {seen.ours}"
        remedy = "what it compares with is of its own version: use the command of that version"
        yield Complaint("note", what, "processes", remedy)


def _spelled(pair: Pair) -> str:
    return f"{pair[0]}.{pair[1]}"


# Kinds


@dataclass(frozen=True, slots=True)
class Definition:
    spec: Mapping[str, Any]
    established: bool = True


INSTALL_KINDS: Final = "kubectl apply --server-side --force-conflicts -k config/crd/"


def definitions(wanted: Mapping[str, Mapping[str, Any]], found: Mapping[str, Definition]) -> Complaints:
    """Our kinds as this version would install them, beside those there are."""
    complaints = []
    for name, spec in wanted.items():
        there, where = found.get(name), f"CRD {name}"
        if there is None:
            complaints.append(Complaint("error", "the kind is not installed", where, INSTALL_KINDS))
        elif not there.established:
            remedy = f"kubectl describe crd {name} says why; a name may be taken by another CRD"
            complaints.append(Complaint("error", "the API server does not serve the kind", where, remedy))
        elif other := list(differences(spec, there.spec)):
            what = f"it is of another version than this command: {named(other)}"
            complaints.append(Complaint("warning", what, where, INSTALL_KINDS))
    return tuple(complaints)


def differences(wanted: Any, found: Any, path: str = "") -> Iterator[str]:
    """Paths at which `found` is not what is wanted; what the API server adds by itself is none."""
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


# Who lives


def silent(lives: Mapping[str, datetime | None], now: datetime) -> dict[str, str]:
    """Who has given no sign of life for too long, and since when; clocks may differ by a minute."""
    ages = {who: None if seen is None else now - seen for who, seen in lives.items()}
    told = {who: "never" if age is None else f"for {_age(age)}" for who, age in ages.items()}
    return {who: told[who] for who, age in ages.items() if age is None or age > SILENT}


def ahead(lives: Mapping[str, datetime | None], now: datetime) -> list[str]:
    """Whose clock is ahead of ours by more than silence would be noticed in."""
    return [who for who, seen in lives.items() if seen is not None and seen - now > SILENT]


def _age(age: timedelta) -> str:
    seconds = int(age.total_seconds())
    return f"{seconds} s" if seconds < 600 else f"{seconds // 60} min"


def agents(lives: Mapping[str, datetime | None], told_silent: Mapping[str, str], now: datetime) -> Complaints:
    """The agents of nodes with cards: by their Leases, and by what the inventory says of them."""
    quiet = {node: f"no sign of life {since}" for node, since in silent(lives, now).items()}
    complaints = [
        Complaint(
            "error",
            f"its agent is silent: {quiet.get(node) or told_silent[node]}; nothing new is given on this node",
            f"node {node}",
            f"kubectl -n d8-gpu-operator get pods -l app=croupier-node --field-selector spec.nodeName={node}",
        )
        for node in sorted({*quiet, *told_silent})
    ]
    if fast := ahead(lives, now):
        remedy = "set the clocks right; ages in this report are wrong by as much"
        complaints.append(
            Complaint("warning", "their clocks are ahead of this machine's", f"nodes {named(fast)}", remedy)
        )
    return tuple(complaints)


def markets(lives: Mapping[str, datetime | None], now: datetime) -> Complaints:
    """The agents that move CPU limits."""
    return tuple(
        Complaint(
            "warning",
            f"the agent of its CPU market is silent: no sign of life {since}; limits went back",
            f"node {node}",
            f"see the pod of croupier-market on {node}, and its log",
        )
        for node, since in sorted(silent(lives, now).items())
    )


def resting(check: str) -> Complaint:
    """What is switched off is not ill for doing nothing."""
    what = "not looked at: everything is switched off (spec.enabled of ModuleConfig gpu-operator is false)"
    return Complaint("note", what, check, "look again when it is on")


# Processes


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    wanted: int
    ready: int


def processes(found: Sequence[Workload], namespace: str) -> Complaints:
    if not found:
        what = "nothing of ours is installed here"
        remedy = "install it (helm install croupier charts/croupier), or say --namespace"
        return (Complaint("error", what, f"namespace {namespace}", remedy),)
    unready = (
        Complaint(
            "error" if one.ready == 0 else "warning",
            f"{one.ready} of {one.wanted} are ready",
            one.name,
            f"kubectl -n {namespace} describe {one.name}, and the logs of its pods",
        )
        for one in found
        if one.ready < one.wanted
    )
    return (*unready, *_switched_off(found, namespace))


def _switched_off(found: Sequence[Workload], namespace: str) -> Iterator[Complaint]:
    """Somebody wants none of it. (Agents run where there is something for them: that may be nowhere.)"""
    for one in found:
        if one.wanted == 0 and one.name.startswith("deployment/"):
            what = "it is scaled to 0, so nobody does its work"
            yield Complaint("error", what, one.name, f"kubectl -n {namespace} scale {one.name} --replicas=1")
