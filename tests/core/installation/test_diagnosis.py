"""Each problem of an installation is reported once, with a remedy."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.installation import diagnosis, diagnosis_cluster, diagnosis_scheduling
from croupier.core.installation.diagnosis import (
    InstallationProblem,
    InstallationProblems,
    InstalledCRD,
    InstalledVersions,
)
from croupier.core.installation.diagnosis_cluster import (
    ExcessPermission,
    MissingPermission,
    NodeResources,
    PoolConditions,
    RegisteredWebhook,
    SettingsSource,
    WebhookFacts,
)
from croupier.core.installation.diagnosis_scheduling import SchedulingFacts
from croupier.core.ledger.finding import LedgerFinding
from croupier.core.pods import disabled

NOW = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)
WANTED = {"Mutating": ("fallback",)}


def summary(complaints: InstallationProblems) -> list[tuple[str, str]]:
    return [(complaint.severity, complaint.where) for complaint in complaints]


VERSIONS = {
    "good": (InstalledVersions("v1.34.2"), []),
    "too old": (InstalledVersions("v1.30.9"), [("error", "API server")]),
    "a vendor version": (InstalledVersions("v1.31.0+k3s1"), []),
    "a vendor version with a plus sign": (InstalledVersions("v1.32+.4-eks"), []),
    "unreadable": (InstalledVersions("main"), [("warning", "API server")]),
    "limits cannot be changed in place": (
        InstalledVersions("v1.32.1", moves_limits=True),
        [("warning", "API server")],
    ),
    "an old kubelet": (InstalledVersions("v1.34.2", {"a": "v1.29.0"}), [("warning", "nodes a")]),
    "a kubelet ahead": (
        InstalledVersions("v1.33.2", {"a": "v1.34.0", "b": "v1.33.0"}),
        [("warning", "nodes a")],
    ),
    "an unfinished upgrade": (
        InstalledVersions("v1.34.2", images={"x": "0.1", "y": "0.2"}),
        [("warning", "processes")],
    ),
    "another version of the command": (
        InstalledVersions("v1.34.2", images={"x": "0.1"}, ours="0.2"),
        [("note", "processes")],
    ),
}


@pytest.mark.parametrize(("seen", "expected"), VERSIONS.values(), ids=VERSIONS)
def test_versions(seen, expected):
    assert summary(diagnosis.versions(seen)) == expected


SPEC = {"scope": "Cluster", "versions": [{"schema": {"properties": {"a": {"type": "string"}}}}]}
ADDED = {**SPEC, "conversion": {"strategy": "None"}}
NEWER = {
    **SPEC,
    "versions": [{"schema": {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}}],
}
KINDS = {
    "as installed by this version": ({"x": InstalledCRD(SPEC)}, []),
    "with defaults of the API server": ({"x": InstalledCRD(ADDED)}, []),
    "missing": ({}, [("error", "CRD x")]),
    "not served": ({"x": InstalledCRD(SPEC, established=False)}, [("error", "CRD x")]),
    "of a newer version": ({"x": InstalledCRD(NEWER)}, [("warning", "CRD x")]),
    "of an older version": ({"x": InstalledCRD({**SPEC, "versions": []})}, [("warning", "CRD x")]),
}


@pytest.mark.parametrize(("found", "expected"), KINDS.values(), ids=KINDS)
def test_crds(found, expected):
    assert summary(diagnosis.crds({"x": SPEC}, found)) == expected


plain = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
    max_leaves=8,
)


def test_crds_of_another_version_are_not_compared():
    """After a rollback the processes are older than the command."""
    older = {"a": InstalledCRD({"properties": {}}), "b": InstalledCRD({}, established=False)}
    found = diagnosis.crds({"a": {"x": 1}, "b": {}, "c": {}}, older, same_version=False)

    assert summary(found) == [("error", "CRD b"), ("note", "CRD c")]
    assert diagnosis.same_version(["", "2.0"], "2.0")
    assert diagnosis.same_version([""], "2.0")
    assert not diagnosis.same_version(["1.9"], "2.0")


@given(plain)
def test_equal_crds_have_no_differences(anything):
    assert not list(diagnosis.differences(anything, anything))


def hooks(**changes: object) -> WebhookFacts:
    seen: dict[str, object] = {
        "namespace": "ns",
        "hooks": {"Mutating": [RegisteredWebhook("fallback", NOW + timedelta(days=300))]},
        "wanted": WANTED,
        "served_until": NOW + timedelta(days=30),
        "probe": "answered",
    }
    return WebhookFacts(**{**seen, **changes})  # type: ignore[arg-type]  # a builder


WEBHOOKS = {
    "well": (hooks(), []),
    "not registered": (hooks(hooks={}), [("error", "Mutating croupier-webhook")]),
    "registered without one of ours": (
        hooks(hooks={"Mutating": []}),
        [("error", "Mutating croupier-webhook")],
    ),
    "an invalid CA bundle": (
        hooks(hooks={"Mutating": [RegisteredWebhook("fallback")]}),
        [("error", "Mutating croupier-webhook")],
    ),
    "an expired CA": (
        hooks(hooks={"Mutating": [RegisteredWebhook("fallback", NOW - timedelta(days=1))]}),
        [("error", "Mutating croupier-webhook")],
    ),
    "an expired certificate": (
        hooks(served_until=NOW - timedelta(days=1)),
        [("error", "certificate of the webhook")],
    ),
    "an expiring certificate": (
        hooks(served_until=NOW + timedelta(days=1)),
        [("warning", "certificate of the webhook")],
    ),
    "an unreadable certificate": (hooks(served_until=None), []),
    "not reached": (hooks(probe="failed", message="refused"), [("error", "croupier webhook")]),
    "not called": (hooks(probe="passed by"), [("error", "croupier webhook")]),
    "not tried": (hooks(probe="not tried", message="quota"), [("note", "croupier webhook")]),
    "a policy is missing": (hooks(policies_missing=["p"]), [("warning", "ValidatingAdmissionPolicy p")]),
}


@pytest.mark.parametrize(("seen", "expected"), WEBHOOKS.values(), ids=WEBHOOKS)
def test_webhooks(seen, expected):
    assert summary(diagnosis_cluster.webhooks(seen, NOW)) == expected


SCHEDULERS = {
    "well": (SchedulingFacts(in_memory="extender", recorded=0), []),
    "bound without the extender": (SchedulingFacts(bypassed=["ns/p"]), [("error", "pods ns/p")]),
    "not scheduled": (
        SchedulingFacts(waiting=["a", "b", "c", "d"]),
        [("warning", "pods a, b, c and 1 more")],
    ),
    "created while it was disabled": (SchedulingFacts(unmarked=["ns/p"]), [("warning", "pods ns/p")]),
    "a Lease that is not renewed": (
        SchedulingFacts(stale_leases={"ns/l": "for 90 s"}),
        [("error", "Lease ns/l")],
    ),
    "two ledgers": (SchedulingFacts(in_memory="extender", recorded=2), [("error", "ledger")]),
}


@pytest.mark.parametrize(("seen", "expected"), SCHEDULERS.values(), ids=SCHEDULERS)
def test_schedulers(seen, expected):
    assert summary(diagnosis_scheduling.scheduling(seen)) == expected


PAST = {
    "only the in-memory ledger": (5, None, False),
    "replaced a minute ago by a killed process": (70, 2, True),
    "replaced, and not reported as silent yet": (20, 2, True),
    "both are renewed": (3, 2, False),
    "the other one has stopped": (90, 70, False),
    "switched back": (2, 30, False),
}


@pytest.mark.parametrize(("in_memory", "shared", "expected"), PAST.values(), ids=PAST)
def test_a_ledger_in_memory_that_was_replaced(in_memory, shared, expected):
    renewed = None if shared is None else ago(shared)
    assert diagnosis_scheduling.is_past(ago(in_memory), renewed, NOW) is expected


PLUGINS = {
    "served": (NodeResources("n", ["r"], ["r"], ("True", "")), []),
    "not served": (NodeResources("n", [], [], ("False", "the kubelet is away")), [("error", "node n")]),
    "served, but not in the kubelet": (NodeResources("n", ["r"], [], ("True", "")), [("error", "node n")]),
    "no agent": (NodeResources("n"), [("note", "node n")]),
}


@pytest.mark.parametrize(("seen", "expected"), PLUGINS.values(), ids=PLUGINS)
def test_plugins(seen, expected):
    assert summary(diagnosis_cluster.plugins([seen], "ns")) == expected


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


AGENTS = {
    "alive": ({"n": ago(12)}, {}, []),
    "no heartbeat": ({"n": ago(61)}, {}, [("error", "node n")]),
    "never a heartbeat": ({"n": None}, {}, [("error", "node n")]),
    "not responding by the inventory": ({"n": ago(30)}, {"n": "no word"}, [("error", "node n")]),
    "both are one problem": ({"n": ago(600)}, {"n": "no word"}, [("error", "node n")]),
    "a clock that is ahead": ({"n": ago(-90)}, {}, [("warning", "nodes n")]),
}


@pytest.mark.parametrize(("lives", "silent", "expected"), AGENTS.values(), ids=AGENTS)
def test_agents(lives, silent, expected):
    assert summary(diagnosis.agents(lives, silent, now=NOW, namespace="ns")) == expected


def test_printed_commands_name_the_namespace_of_the_installation():
    """They are typed as printed, so one that names another namespace finds nothing."""
    problems = (
        *diagnosis.agents({"n": None}, {}, now=NOW, namespace="mine"),
        *diagnosis_cluster.plugins([NodeResources("n", served=("False", "gone"))], "mine"),
        *diagnosis_cluster.webhooks(hooks(namespace="mine", served_until=NOW), NOW),
        *diagnosis_cluster.webhooks(hooks(namespace="mine", probe="failed"), NOW),
    )

    assert len(problems) == 4
    assert [problem.remedy for problem in problems if "kubectl -n mine " not in problem.remedy] == []


def test_a_market_without_an_agent_is_a_problem_and_a_disabled_check_is_not():
    assert summary(diagnosis.markets({"n": ago(90), "m": ago(5)}, NOW)) == [("warning", "node n")]
    assert not diagnosis.needs_action([diagnosis.skipped("agents")])


def test_ledger_findings_are_repaired_if_possible():
    findings = [("n", LedgerFinding("Leak", "no pod"), True), ("n", LedgerFinding("Overlap", "twice"), False)]
    leak, overlap = diagnosis_cluster.ledger(findings)
    assert (leak.severity, overlap.severity) == ("warning", "error")
    assert leak.remedy == "croupier audit n --fix"
    assert "--fix" not in overlap.remedy


def test_pools_settings_and_permissions():
    pool = PoolConditions("p", {"Misconfigured": "two claim one card", "Maintenance": "cut"})
    assert summary(diagnosis_cluster.pools([pool, PoolConditions("q", {"Available": ""})])) == [
        ("error", "GPUPool p"),
        ("warning", "GPUPool p"),
    ]
    bad, off = (
        SettingsSource("ConfigMap x", ["logLevel: no"]),
        SettingsSource("ModuleConfig y", enabled=False),
    )
    assert summary(diagnosis_cluster.settings([bad, off])) == [
        ("error", "ConfigMap x"),
        ("warning", "ModuleConfig y"),
        ("note", "settings"),
    ]
    assert disabled.EFFECT in diagnosis_cluster.settings([off])[0].what
    rights = diagnosis_cluster.permissions(
        [MissingPermission("a", "list", "pods"), MissingPermission("a", "watch", "pods")]
    )
    assert [right.what for right in rights] == ["it may not list, watch pods"]


def test_an_account_that_must_not_write_is_an_error_for_each_binding():
    binding = 'RBAC: allowed by ClusterRoleBinding "oops"'
    found = [
        ExcessPermission("croupier-ui", "patch", "nodes", binding),
        ExcessPermission("croupier-ui", "delete", "pods", binding),
        ExcessPermission("croupier-ui", "create", "secrets", "RBAC: another"),
    ]
    problems = diagnosis_cluster.excess_permissions(found)

    assert summary(problems) == [("error", "ServiceAccount croupier-ui")] * 2
    assert any("delete pods, patch nodes" in problem.what and "oops" in problem.what for problem in problems)
    assert diagnosis_cluster.excess_permissions([]) == ()


def test_notes_need_no_action_and_errors_come_first():
    note, error = InstallationProblem("note", "", "a", ""), InstallationProblem("error", "", "b", "")
    assert not diagnosis.needs_action([note])
    assert diagnosis.needs_action([note, error])
    assert diagnosis.ordered([note, error]) == (error, note)
