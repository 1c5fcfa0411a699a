"""Checks of the cluster around an installation: webhooks, device plugins, pools and settings."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias

from croupier.core.installation import diagnosis, diagnosis_processes
from croupier.core.installation.diagnosis import EXPIRY_WARNING, InstallationProblem, InstallationProblems
from croupier.core.ledger.finding import LedgerFinding
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.core.pods import disabled

ProbeResult: TypeAlias = Literal["answered", "passed by", "failed", "not tried"]
"""The outcome of a dry-run pod creation. `passed by`: the webhook was not called."""


@dataclass(frozen=True, slots=True)
class RegisteredWebhook:
    """A registered webhook. `trusts_until` is None if its CA bundle has no valid certificate."""

    name: str
    trusts_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class WebhookFacts:
    namespace: str
    """The namespace of the webhook."""
    hooks: Mapping[str, Sequence[RegisteredWebhook]]
    """By kind of configuration; a missing configuration is left out."""
    wanted: Mapping[str, Collection[str]]
    served_until: datetime | None = None
    """When the serving certificate expires; None if it could not be read."""
    probe: ProbeResult = "not tried"
    message: str = ""
    """The API server's answer to the probe."""
    policies_missing: Collection[str] = ()

    @property
    def restart(self) -> str:
        return f"kubectl -n {self.namespace} rollout restart deployment gpu-admission-webhook"

    @property
    def reinstall(self) -> str:
        return diagnosis_processes.repeat_installation(self.namespace)


def webhooks(seen: WebhookFacts, now: datetime) -> InstallationProblems:
    return (*_registered(seen, now), *_certificate(seen, now), *_probed(seen), *_policies(seen))


def _registered(seen: WebhookFacts, now: datetime) -> Iterator[InstallationProblem]:
    for kind, wanted in seen.wanted.items():
        where = f"{kind} croupier-webhook"
        if kind not in seen.hooks:
            what = "it is missing: new pods are not mutated, and pool access is not checked"
            yield InstallationProblem("error", what, where, f"start croupier webhook, or {seen.reinstall}")
            continue
        there = {hook.name: hook for hook in seen.hooks[kind]}
        if lacking := set(wanted) - there.keys():
            yield InstallationProblem(
                "error", f"it lacks {diagnosis.join_names(lacking)}", where, seen.reinstall
            )
        ends = [hook.trusts_until for hook in there.values() if hook.name in wanted]
        if None in ends:
            what = "its CA bundle is empty or invalid, so the API server cannot call the webhook"
            yield InstallationProblem("error", what, where, seen.restart)
        elif over := [end for end in ends if end is not None and end <= now]:
            what = f"the CA certificate in its bundle expired at {over[0]:%Y-%m-%d %H:%M} UTC"
            yield InstallationProblem("error", what, where, seen.restart)


def _certificate(seen: WebhookFacts, now: datetime) -> Iterator[InstallationProblem]:
    if seen.served_until is None:
        return
    when, where = f"{seen.served_until:%Y-%m-%d %H:%M} UTC", "certificate of the webhook"
    if seen.served_until <= now:
        yield InstallationProblem("error", f"it expired at {when}", where, seen.restart)
    elif seen.served_until - now < EXPIRY_WARNING:
        what = f"it expires at {when} and was not renewed in time"
        yield InstallationProblem("warning", what, where, f"see the log of the webhook, then {seen.restart}")


def _probed(seen: WebhookFacts) -> Iterator[InstallationProblem]:
    if seen.probe == "failed":
        remedy = (
            f"check that it is Ready (kubectl -n {seen.namespace} get pods -l app=gpu-admission-webhook) "
        )
        remedy += "and that the API server can reach its port"
        yield InstallationProblem(
            "error", f"the API server cannot call it: {seen.message}", "croupier webhook", remedy
        )
    elif seen.probe == "passed by":
        what = "the API server did not call it for a pod that requests cards"
        remedy = "check that it is Ready and enabled, and check its namespaceSelector"
        yield InstallationProblem("error", what, "croupier webhook", remedy)
    elif seen.probe == "not tried" and seen.message:
        what = f"it was not probed: {seen.message}"
        remedy = "create a pod that requests a card, and check that it is mutated"
        yield InstallationProblem("note", what, "croupier webhook", remedy)


def _policies(seen: WebhookFacts) -> Iterator[InstallationProblem]:
    for name in sorted(seen.policies_missing):
        what = "it is missing or has no binding, so its rules are not enforced"
        yield InstallationProblem("warning", what, f"ValidatingAdmissionPolicy {name}", seen.reinstall)


# Cards on nodes


@dataclass(frozen=True, slots=True)
class NodeResources:
    """A node with cards, as its kubelet and its agent report it."""

    node: str
    wanted: Collection[str] = ()
    """Resources that its cards should provide."""
    has: Collection[str] = ()
    served: tuple[str, str] | None = None
    """Status and message of the condition GPUResourcesServed; None if the condition is missing."""


def plugins(nodes: Sequence[NodeResources], namespace: str) -> InstallationProblems:
    complaints = []
    for node in nodes:
        where = f"node {node.node}"
        logs = f"kubectl -n {namespace} logs -l app=croupier-node; and the kubelet's log on {node.node}"
        if node.served is not None and node.served[0] != "True":
            complaints.append(
                InstallationProblem("error", f"its cards are not served: {node.served[1]}", where, logs)
            )
        elif lacking := set(node.wanted) - set(node.has):
            what = f"its cards are known, but its kubelet does not offer {diagnosis.join_names(lacking)}"
            complaints.append(InstallationProblem("error", what, where, logs))
        elif node.served is None:
            remedy = "run the agent there (DaemonSet croupier-node), unless another device plugin serves it"
            what = "it has cards, but no Croupier agent reports how they are served"
            complaints.append(InstallationProblem("note", what, where, remedy))
    return tuple(complaints)


def ledger(findings: Sequence[tuple[str, LedgerFinding, bool]]) -> InstallationProblems:
    """`findings`: the node, the finding, and whether it can be repaired safely."""
    return tuple(
        InstallationProblem(
            "error" if finding.kind in ("Overlap", "WrongCard") else "warning",
            f"{finding.kind}: {finding.message}",
            f"node {node}",
            f"croupier audit {node} --fix"
            if repairable
            else f"croupier explain node {node} shows which pod holds which card",
        )
        for node, finding, repairable in findings
    )


@dataclass(frozen=True, slots=True)
class PoolConditions:
    name: str
    holds: Mapping[str, str] = field(default_factory=dict)
    """Messages of the conditions that are True, by type."""


def pools(states: Sequence[PoolConditions]) -> InstallationProblems:
    complaints = []
    for pool in states:
        where = f"GPUPool {pool.name}"
        if "Misconfigured" in pool.holds:
            what = f"Misconfigured: {pool.holds['Misconfigured']}"
            complaints.append(
                InstallationProblem("error", what, where, f"croupier pools show {pool.name} says what to do")
            )
        if "Maintenance" in pool.holds:
            what = f"Maintenance, no new pods get cards: {pool.holds['Maintenance']}"
            remedy = f"croupier pools show {pool.name} shows which pods still hold cards"
            complaints.append(InstallationProblem("warning", what, where, remedy))
    return tuple(complaints)


@dataclass(frozen=True, slots=True)
class SettingsSource:
    where: str
    problems: Collection[str] = ()
    enabled: bool = True


def settings(sources: Sequence[SettingsSource]) -> InstallationProblems:
    complaints = []
    for source in sources:
        for problem in source.problems:
            what = f"{problem}; running processes keep the previous settings, and no process can start"
            remedy = "correct it; croupier settings check -f FILE lists every error"
            complaints.append(InstallationProblem("error", what, source.where, remedy))
        if not source.enabled:
            what = f"Croupier is disabled: {disabled.EFFECT}"
            remedy = "set spec.enabled: true to enable it again, or uninstall it (croupier uninstall)"
            complaints.append(InstallationProblem("warning", what, source.where, remedy))
    if len(sources) > 1:
        places = " and ".join(source.where for source in sources)
        what = f"there are settings in {places}; each process reads only the source in its --settings"
        complaints.append(InstallationProblem("note", what, "settings", "keep one of the two"))
    return tuple(complaints)


@dataclass(frozen=True, slots=True)
class MissingPermission:
    account: str
    verb: str
    resource: str


def permissions(
    lacking: Sequence[MissingPermission], namespace: str = DEFAULT_NAMESPACE
) -> InstallationProblems:
    """One problem per account and resource."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for right in lacking:
        verbs.setdefault((right.account, right.resource), []).append(right.verb)
    return tuple(
        InstallationProblem(
            "error",
            f"it may not {', '.join(names)} {resource}",
            f"ServiceAccount {account}",
            diagnosis_processes.repeat_installation(namespace),
        )
        for (account, resource), names in sorted(verbs.items())
    )


@dataclass(frozen=True, slots=True)
class ExcessPermission:
    """A permission that an account must not have; `reason` names the binding that grants it."""

    account: str
    verb: str
    resource: str
    reason: str = ""


def excess_permissions(found: Sequence[ExcessPermission]) -> InstallationProblems:
    """One problem per account and binding: these accounts only read."""
    granted: dict[tuple[str, str], list[str]] = {}
    for right in found:
        granted.setdefault((right.account, right.reason), []).append(f"{right.verb} {right.resource}")
    return tuple(
        InstallationProblem(
            "error",
            f"it may {diagnosis.join_names(rights)}, but it must not write ({reason or 'no reason given'})",
            f"ServiceAccount {account}",
            "remove that binding, or the rule from its role; the page writes as its viewer, never by itself",
        )
        for (account, reason), rights in sorted(granted.items())
    )
