"""Each thing that can be wrong with an installation is told once, with what to do about it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.installation import diagnosis, diagnosis_cluster
from croupier.core.installation.diagnosis import Complaint, Complaints, Definition, Versions, Workload
from croupier.core.installation.diagnosis_cluster import (
    Hook,
    Lacking,
    PoolState,
    Scheduling,
    Serving,
    SettingsSeen,
    Webhooks,
)
from croupier.core.ledgers.finding import Finding

NOW = datetime(2026, 11, 16, 8, 0, tzinfo=UTC)
WANTED = {"Mutating": ("fallback",)}


def told(complaints: Complaints) -> list[tuple[str, str]]:
    return [(one.severity, one.where) for one in complaints]


VERSIONS = {
    "good": (Versions("v1.34.2"), []),
    "too old": (Versions("v1.30.9"), [("error", "API server")]),
    "of a vendor": (Versions("v1.31.0+k3s1"), []),
    "of a vendor who writes 32+": (Versions("v1.32+.4-eks"), []),
    "unreadable": (Versions("main"), [("warning", "API server")]),
    "limits cannot be moved": (Versions("v1.32.1", moves_limits=True), [("warning", "API server")]),
    "an old kubelet": (Versions("v1.34.2", {"a": "v1.29.0"}), [("warning", "nodes a")]),
    "a kubelet ahead": (Versions("v1.33.2", {"a": "v1.34.0", "b": "v1.33.0"}), [("warning", "nodes a")]),
    "half an upgrade": (Versions("v1.34.2", images={"x": "0.1", "y": "0.2"}), [("warning", "processes")]),
    "another command": (Versions("v1.34.2", images={"x": "0.1"}, ours="0.2"), [("note", "processes")]),
}


@pytest.mark.parametrize(("seen", "expected"), VERSIONS.values(), ids=VERSIONS)
def test_versions(seen, expected):
    assert told(diagnosis.versions(seen)) == expected


SPEC = {"scope": "Cluster", "versions": [{"schema": {"properties": {"a": {"type": "string"}}}}]}
ADDED = {**SPEC, "conversion": {"strategy": "None"}}
NEWER = {
    **SPEC,
    "versions": [{"schema": {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}}],
}
KINDS = {
    "as we would install it": ({"x": Definition(SPEC)}, []),
    "with what the API server adds": ({"x": Definition(ADDED)}, []),
    "missing": ({}, [("error", "CRD x")]),
    "not served": ({"x": Definition(SPEC, established=False)}, [("error", "CRD x")]),
    "of a newer version": ({"x": Definition(NEWER)}, [("warning", "CRD x")]),
    "of an older version": ({"x": Definition({**SPEC, "versions": []})}, [("warning", "CRD x")]),
}


@pytest.mark.parametrize(("found", "expected"), KINDS.values(), ids=KINDS)
def test_kinds(found, expected):
    assert told(diagnosis.definitions({"x": SPEC}, found)) == expected


plain = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=3),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
    max_leaves=8,
)


@given(plain)
def test_what_is_as_wanted_does_not_differ(anything):
    assert not list(diagnosis.differences(anything, anything))


def hooks(**changes: object) -> Webhooks:
    seen: dict[str, object] = {
        "hooks": {"Mutating": [Hook("fallback", NOW + timedelta(days=300))]},
        "wanted": WANTED,
        "served_until": NOW + timedelta(days=30),
        "probe": "answered",
    }
    return Webhooks(**{**seen, **changes})  # type: ignore[arg-type]  # a builder


WEBHOOKS = {
    "well": (hooks(), []),
    "not registered": (hooks(hooks={}), [("error", "Mutating croupier-webhook")]),
    "registered without one of ours": (
        hooks(hooks={"Mutating": []}),
        [("error", "Mutating croupier-webhook")],
    ),
    "trusts nobody": (
        hooks(hooks={"Mutating": [Hook("fallback")]}),
        [("error", "Mutating croupier-webhook")],
    ),
    "trusts a dead authority": (
        hooks(hooks={"Mutating": [Hook("fallback", NOW - timedelta(days=1))]}),
        [("error", "Mutating croupier-webhook")],
    ),
    "its certificate ended": (
        hooks(served_until=NOW - timedelta(days=1)),
        [("error", "certificate of the webhook")],
    ),
    "its certificate ends": (
        hooks(served_until=NOW + timedelta(days=1)),
        [("warning", "certificate of the webhook")],
    ),
    "its certificate is not for our eyes": (hooks(served_until=None), []),
    "not reached": (hooks(probe="failed", told="refused"), [("error", "croupier webhook")]),
    "passed by": (hooks(probe="passed by"), [("error", "croupier webhook")]),
    "not tried": (hooks(probe="not tried", told="quota"), [("note", "croupier webhook")]),
    "a policy is missing": (hooks(policies_missing=["p"]), [("warning", "ValidatingAdmissionPolicy p")]),
}


@pytest.mark.parametrize(("seen", "expected"), WEBHOOKS.values(), ids=WEBHOOKS)
def test_webhooks(seen, expected):
    assert told(diagnosis_cluster.webhooks(seen, NOW)) == expected


SCHEDULERS = {
    "well": (Scheduling(in_memory="extender", recorded=0), []),
    "nobody asked us": (Scheduling(passed_by=["ns/p"]), [("error", "pods ns/p")]),
    "nobody looks": (Scheduling(waiting=["a", "b", "c", "d"]), [("warning", "pods a, b, c and 1 more")]),
    "nobody keeps it": (Scheduling(keepers={"ns/l": "for 90 s"}), [("error", "Lease ns/l")]),
    "two books": (Scheduling(in_memory="extender", recorded=2), [("error", "ledger")]),
}


@pytest.mark.parametrize(("seen", "expected"), SCHEDULERS.values(), ids=SCHEDULERS)
def test_schedulers(seen, expected):
    assert told(diagnosis_cluster.scheduling(seen)) == expected


PLUGINS = {
    "served": (Serving("n", ["r"], ["r"], ("True", "")), []),
    "not served": (Serving("n", [], [], ("False", "the kubelet is away")), [("error", "node n")]),
    "served, they say": (Serving("n", ["r"], [], ("True", "")), [("error", "node n")]),
    "served by whom": (Serving("n"), [("note", "node n")]),
}


@pytest.mark.parametrize(("seen", "expected"), PLUGINS.values(), ids=PLUGINS)
def test_plugins(seen, expected):
    assert told(diagnosis_cluster.plugins([seen])) == expected


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


AGENTS = {
    "alive": ({"n": ago(12)}, {}, []),
    "silent": ({"n": ago(61)}, {}, [("error", "node n")]),
    "never heard of": ({"n": None}, {}, [("error", "node n")]),
    "silent, the inventory says": ({"n": ago(30)}, {"n": "no word"}, [("error", "node n")]),
    "twice is once": ({"n": ago(600)}, {"n": "no word"}, [("error", "node n")]),
    "from the future": ({"n": ago(-90)}, {}, [("warning", "nodes n")]),
}


@pytest.mark.parametrize(("lives", "silent", "expected"), AGENTS.values(), ids=AGENTS)
def test_agents(lives, silent, expected):
    assert told(diagnosis.agents(lives, silent, NOW)) == expected


def test_a_market_without_an_agent_is_told_and_what_is_off_is_not_ill():
    assert told(diagnosis.markets({"n": ago(90), "m": ago(5)}, NOW)) == [("warning", "node n")]
    assert not diagnosis.sick([diagnosis.resting("agents")])


def test_processes_that_are_not_there_or_not_ready():
    half, none = Workload("deployment/a", 2, 1), Workload("daemonset/b", 1, 0)
    assert told(diagnosis.processes([half, none, Workload("deployment/c", 1, 1)], "ns")) == [
        ("warning", "deployment/a"),
        ("error", "daemonset/b"),
    ]
    assert told(diagnosis.processes([], "ns")) == [("error", "namespace ns")]


def test_what_somebody_scaled_to_nothing_is_named_with_how_to_bring_it_back():
    nowhere = Workload("daemonset/croupier-node", 0, 0)
    (complaint,) = diagnosis.processes([Workload("deployment/webhook", 0, 0), nowhere], "ns")
    assert (complaint.severity, complaint.where) == ("error", "deployment/webhook")
    assert complaint.remedy == "kubectl -n ns scale deployment/webhook --replicas=1"


def test_what_the_ledger_says_is_repaired_where_it_can_be():
    findings = [("n", Finding("Leak", "no pod"), True), ("n", Finding("Overlap", "twice"), False)]
    leak, overlap = diagnosis_cluster.ledger(findings)
    assert (leak.severity, overlap.severity) == ("warning", "error")
    assert leak.remedy == "croupier audit n --fix"
    assert "--fix" not in overlap.remedy


def test_pools_settings_and_rights():
    pool = PoolState("p", {"Misconfigured": "two claim one card", "Maintenance": "cut"})
    assert told(diagnosis_cluster.pools([pool, PoolState("q", {"Available": ""})])) == [
        ("error", "GPUPool p"),
        ("warning", "GPUPool p"),
    ]
    bad, off = SettingsSeen("ConfigMap x", ["logLevel: no"]), SettingsSeen("ModuleConfig y", enabled=False)
    assert told(diagnosis_cluster.settings([bad, off])) == [
        ("error", "ConfigMap x"),
        ("note", "ModuleConfig y"),
        ("note", "settings"),
    ]
    rights = diagnosis_cluster.rights([Lacking("a", "list", "pods"), Lacking("a", "watch", "pods")])
    assert [one.what for one in rights] == ["it may not list, watch pods"]


def test_notes_make_nobody_sick_and_the_worst_comes_first():
    note, error = Complaint("note", "", "a", ""), Complaint("error", "", "b", "")
    assert not diagnosis.sick([note])
    assert diagnosis.sick([note, error])
    assert diagnosis.ordered([note, error]) == (error, note)
