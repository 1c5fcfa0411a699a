"""What is wrong around an installation: who is asked about pods, who serves cards, what the settings say."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from croupier.core.installation import diagnosis
from croupier.core.installation.diagnosis import ENDS_SOON, Complaint, Complaints
from croupier.core.ledgers.finding import Finding

Probe: TypeAlias = Literal["answered", "passed by", "failed", "not tried"]
"""What became of a pod that was offered to the webhook, without being made."""


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook as the API server knows it. `trusts_until` is None if it trusts nobody it can read."""

    name: str
    trusts_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Webhooks:
    hooks: Mapping[str, Sequence[Hook]]
    """By the kind of configuration; a kind without one is left out."""
    wanted: Mapping[str, Collection[str]]
    served_until: datetime | None = None
    """When the certificate ends; None: not seen."""
    probe: Probe = "not tried"
    told: str = ""
    """What the API server said to the probe."""
    policies_missing: Collection[str] = ()


RESTART_WEBHOOK: Final = "kubectl -n d8-gpu-operator rollout restart deployment gpu-admission-webhook"
REINSTALL: Final = "install the manifests again (helm upgrade croupier charts/croupier)"


def webhooks(seen: Webhooks, now: datetime) -> Complaints:
    return (*_registered(seen, now), *_certificate(seen, now), *_probed(seen), *_policies(seen))


def _registered(seen: Webhooks, now: datetime) -> Iterator[Complaint]:
    for kind, wanted in seen.wanted.items():
        where = f"{kind} croupier-webhook"
        if kind not in seen.hooks:
            what = "it is missing: new pods are neither repaired nor held to the pools they may use"
            yield Complaint("error", what, where, f"start croupier webhook, or {REINSTALL}")
            continue
        there = {one.name: one for one in seen.hooks[kind]}
        if lacking := set(wanted) - there.keys():
            yield Complaint("error", f"it lacks {diagnosis.named(lacking)}", where, REINSTALL)
        ends = [one.trusts_until for one in there.values() if one.name in wanted]
        if None in ends:
            what = "it trusts no authority, so the API server cannot call us"
            yield Complaint("error", what, where, RESTART_WEBHOOK)
        elif over := [end for end in ends if end is not None and end <= now]:
            what = f"the authority it trusts ended at {over[0]:%Y-%m-%d %H:%M} UTC"
            yield Complaint("error", what, where, RESTART_WEBHOOK)


def _certificate(seen: Webhooks, now: datetime) -> Iterator[Complaint]:
    if seen.served_until is None:
        return
    when, where = f"{seen.served_until:%Y-%m-%d %H:%M} UTC", "certificate of the webhook"
    if seen.served_until <= now:
        yield Complaint("error", f"it ended at {when}", where, RESTART_WEBHOOK)
    elif seen.served_until - now < ENDS_SOON:
        what = f"it ends at {when} and was not renewed, which happens long before"
        yield Complaint("warning", what, where, f"see the log of the webhook, then {RESTART_WEBHOOK}")


def _probed(seen: Webhooks) -> Iterator[Complaint]:
    if seen.probe == "failed":
        remedy = "kubectl -n d8-gpu-operator get pods -l app=gpu-admission-webhook; is it Ready, and is its "
        remedy += "port open to the API server?"
        yield Complaint("error", f"the API server cannot call it: {seen.told}", "croupier webhook", remedy)
    elif seen.probe == "passed by":
        what = "a pod that asks for cards was passed by it"
        remedy = "see that it is Ready, that it is switched on, and its namespaceSelector"
        yield Complaint("error", what, "croupier webhook", remedy)
    elif seen.probe == "not tried" and seen.told:
        what = f"whether it answers was not tried: {seen.told}"
        yield Complaint("note", what, "croupier webhook", "create a pod that asks for a card, and look at it")


def _policies(seen: Webhooks) -> Iterator[Complaint]:
    for name in sorted(seen.policies_missing):
        what = "it is missing or bound to nothing, so what it holds people to is held by nobody"
        yield Complaint("warning", what, f"ValidatingAdmissionPolicy {name}", REINSTALL)


# The scheduler


@dataclass(frozen=True, slots=True)
class Scheduling:
    in_memory: str = ""
    """Who keeps the book in memory; empty if nobody does."""
    recorded: int = 0
    """Nodes whose ledger stands in the API server."""
    keepers: Mapping[str, str] = field(default_factory=dict)
    """Leases of ours that nobody renews, and since when."""
    passed_by: Collection[str] = ()
    """Marked pods that were bound without cards: their scheduler did not ask us."""
    waiting: Collection[str] = ()
    """Marked pods that have waited long, and whose scheduler has not even said why."""


ASK: Final = "croupier scheduler-config prints what kube-scheduler must be told"


def scheduling(seen: Scheduling) -> Complaints:
    return (*_asked(seen), *_book(seen))


def _asked(seen: Scheduling) -> Iterator[Complaint]:
    if seen.passed_by:
        what = "they were bound without cards by a scheduler that did not ask the extender"
        yield Complaint("error", what, f"pods {diagnosis.named(seen.passed_by)}", ASK)
    if seen.waiting:
        what = "no scheduler has looked at them"
        remedy = "does the scheduler they name in schedulerName run, and does it reach the extender?"
        yield Complaint("warning", what, f"pods {diagnosis.named(seen.waiting)}", remedy)


def _book(seen: Scheduling) -> Iterator[Complaint]:
    for lease, since in sorted(seen.keepers.items()):
        what = f"nobody has renewed it {since}: what it stands for is not done"
        remedy = "see that the process that renews it runs, and what its log says"
        yield Complaint("error", what, f"Lease {lease}", remedy)
    if seen.in_memory and seen.recorded:
        what = f"{seen.in_memory} keeps the book in memory, and {seen.recorded} NodeReservations exist, too"
        remedy = (
            "set capacityManager to the same for all processes and restart them; the book is carried over"
        )
        yield Complaint("error", what, "ledger", remedy)


# Cards on nodes


@dataclass(frozen=True, slots=True)
class Serving:
    """A node with cards, as its kubelet and its agent tell of it."""

    node: str
    wanted: Collection[str] = ()
    """Resources that it should have by its cards."""
    has: Collection[str] = ()
    served: tuple[str, str] | None = None
    """Status and sentence of the condition GPUResourcesServed; None: there is none."""


def plugins(nodes: Sequence[Serving]) -> Complaints:
    complaints = []
    for one in nodes:
        where = f"node {one.node}"
        logs = f"kubectl -n d8-gpu-operator logs -l app=croupier-node; and the kubelet's log on {one.node}"
        if one.served is not None and one.served[0] != "True":
            complaints.append(Complaint("error", f"its cards are not served: {one.served[1]}", where, logs))
        elif lacking := set(one.wanted) - set(one.has):
            what = f"its cards are known, but its kubelet does not offer {diagnosis.named(lacking)}"
            complaints.append(Complaint("error", what, where, logs))
        elif one.served is None:
            remedy = (
                "start the agent there (DaemonSet croupier-node), or leave its cards to who serves them now"
            )
            what = "it has cards and no agent of ours tells how they are served"
            complaints.append(Complaint("note", what, where, remedy))
    return tuple(complaints)


def ledger(findings: Sequence[tuple[str, Finding, bool]]) -> Complaints:
    """Of each the node, the finding, and whether it can be repaired safely."""
    return tuple(
        Complaint(
            "error" if found.kind in ("Overlap", "WrongCard") else "warning",
            f"{found.kind}: {found.message}",
            f"node {node}",
            f"croupier audit {node} --fix"
            if repairable
            else f"croupier explain node {node} shows who has what",
        )
        for node, found, repairable in findings
    )


@dataclass(frozen=True, slots=True)
class PoolState:
    name: str
    holds: Mapping[str, str] = field(default_factory=dict)
    """Conditions that are True, with their sentence."""


def pools(found: Sequence[PoolState]) -> Complaints:
    complaints = []
    for pool in found:
        where = f"GPUPool {pool.name}"
        if "Misconfigured" in pool.holds:
            what = f"Misconfigured: {pool.holds['Misconfigured']}"
            complaints.append(
                Complaint("error", what, where, f"croupier pools show {pool.name} says what to do")
            )
        if "Maintenance" in pool.holds:
            what = f"Maintenance, nothing new is given: {pool.holds['Maintenance']}"
            remedy = f"croupier pools show {pool.name} shows who still holds what"
            complaints.append(Complaint("warning", what, where, remedy))
    return tuple(complaints)


@dataclass(frozen=True, slots=True)
class SettingsSeen:
    where: str
    problems: Collection[str] = ()
    enabled: bool = True


def settings(found: Sequence[SettingsSeen]) -> Complaints:
    complaints = []
    for one in found:
        for problem in one.problems:
            what = f"{problem}; running processes go on with what was in force before, and none can start"
            remedy = "correct it; croupier settings check -f FILE lists every error"
            complaints.append(Complaint("error", what, one.where, remedy))
        if not one.enabled:
            what = "everything is switched off: processes run and do nothing"
            remedy = "set spec.enabled: true when it shall work again"
            complaints.append(Complaint("note", what, one.where, remedy))
    if len(found) > 1:
        places = " and ".join(one.where for one in found)
        what = f"settings stand in {places}; each process reads one of them, by its --settings"
        complaints.append(Complaint("note", what, "settings", "keep one of the two"))
    return tuple(complaints)


@dataclass(frozen=True, slots=True)
class Lacking:
    account: str
    verb: str
    resource: str


def rights(lacking: Sequence[Lacking]) -> Complaints:
    """One complaint for each account and resource."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for one in lacking:
        verbs.setdefault((one.account, one.resource), []).append(one.verb)
    return tuple(
        Complaint("error", f"it may not {', '.join(told)} {resource}", f"ServiceAccount {account}", REINSTALL)
        for (account, resource), told in sorted(verbs.items())
    )
