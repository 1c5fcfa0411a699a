"""Results of the scenario: permissions are minimal, every panel has data, and the chart options work.

The audit log contains the requests of every process under its own account, with both capacity managers. The
tests also try requests that a compromised account must not be allowed.
"""

import json
import math
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from croupier.admission.pools import POOLS_DISABLED
from croupier.api import kinds, usage_records
from croupier.core.nodes.bootstrap import DCGM, GFD
from croupier.core.pods.request_parser import LEDGER
from croupier.kube.client.errors import Forbidden, Invalid
from tests.capacity import test_exclusion, test_migration
from tests.controllers.ledger import test_mirror, test_usage
from tests.install import chart_env, chart_options, escalation, faults, nfd_crds, prometheus, rbac, rendering
from tests.install.chart_env import EXTENDER, NAMESPACE, WEBHOOK, ChartEnv, Part
from tests.install.dashboard import PANELS
from tests.install.rbac import AuditedRequest, Permission
from tools import chart

SECONDS = 90
ROOT = Path(__file__).resolve().parents[2]
UPSTREAM = "kube-scheduler"
SETTINGS = ("croupier-settings", "croupier-settings-events")
"""Roles that depend only on the source of the settings."""
RECORDERS = (("in memory", EXTENDER), ("available", "croupier-ledger"))
"""The account that records usage and mirrors placements, by phase."""
NOT_COVERED_HERE = {
    ("in memory", EXTENDER, "get nodereservations.mps.nvidia.com"): (
        test_migration.test_a_late_write_is_moved_too
    ),
    ("in memory", EXTENDER, f"update leases.coordination.k8s.io croupier-shared-ledger in {NAMESPACE}"): (
        test_exclusion.test_the_in_memory_manager_marks_the_lease_of_stopped_managers_as_released
    ),
    # In that phase, the ConfigMaps may exist already.
    ("available", "croupier-ledger", f"create configmaps in {NAMESPACE}"): (
        test_usage.test_finished_days_are_copied_and_old_days_dropped
    ),
    **{
        (part, account, f"{verb} reservations.mps.nvidia.com"): (test_mirror.test_the_writes_of_a_placement)
        for part, account in RECORDERS
        for verb in ("create", "delete")
    },
    **{
        (part, account, f"{verb} configmaps {usage_records.ACCOUNT}-{slot:02} in {NAMESPACE}"): (
            test_usage.test_finished_days_are_copied_and_old_days_dropped
        )
        for part, account in RECORDERS
        for slot in range(usage_records.SLOTS)
        for verb in ("get", "update")
    },
    (
        "in memory",
        WEBHOOK,
        "patch validatingadmissionpolicybindings.admissionregistration.k8s.io croupier-require-mark",
    ): chart_options.mark_required,
}
"""By phase and account: permissions that the audited phases do not use, and the test or the later step of the
scenario that does what they permit."""


def requests_of(finished: ChartEnv, part: Part) -> dict[str, set[AuditedRequest]]:
    """Requests by account; for kube-scheduler only those on its Lease, which the chart grants."""
    done = rbac.requests_by_account(finished.page(part), NAMESPACE)
    return {
        account: {item for item in found if item.program != UPSTREAM or item.right.resource == "leases"}
        for account, found in done.items()
    }


@dataclass
class AccountUsage:
    """An account with its permissions in item or more phases, and its requests."""

    parts: list[str] = field(default_factory=list)
    rights: set[Permission] = field(default_factory=set)
    deeds: set[AuditedRequest] = field(default_factory=set)


def account_usages(finished: ChartEnv) -> dict[tuple[str, frozenset[Permission]], AccountUsage]:
    """Group the phases in which an account has the same permissions."""
    found: dict[tuple[str, frozenset[Permission]], AccountUsage] = defaultdict(AccountUsage)
    for part in finished.parts:
        granted, done = rbac.granted(part.objects), requests_of(finished, part)
        own = rbac.granted(part.objects, without=SETTINGS)
        for account, some in granted.items():
            office = found[account, frozenset(own.get(account, ()))]
            if account in done:
                office.parts.append(part.name)
                office.rights |= some
                office.deeds |= done[account]
    return dict(found)


@pytest.mark.parametrize("name", ["in memory", "available"])
def test_every_request_was_permitted(finished_scenario, name):
    (part,) = (item for item in finished_scenario.parts if item.name == name)
    granted, done = rbac.granted(part.objects), requests_of(finished_scenario, part)
    assert granted.keys() == set(rendering.pods(part.objects))

    assert {
        account: missing for account in done if (missing := rbac.missing(granted[account], done[account]))
    } == {}
    assert [str(item.right) for found in done.values() for item in found if not item.allowed] == []


def test_every_permission_was_used(finished_scenario):
    found = account_usages(finished_scenario)
    assert [account for (account, _), office in found.items() if not office.parts] == [], (
        "accounts without requests"
    )
    unused = {
        (account, *office.parts): left
        for (account, _), office in found.items()
        if (
            left := [
                item
                for item in rbac.unused(office.rights, office.deeds)
                if not is_covered_elsewhere(account, office, item)
            ]
        )
    }

    assert unused == {}


def is_covered_elsewhere(account: str, office: AccountUsage, right: str) -> bool:
    return any((part, account, right) in NOT_COVERED_HERE for part in office.parts)


def test_no_wildcards_and_no_foreign_secrets():
    usual = chart.NAMESPACE
    for namespace, options in ((usual, ()), (NAMESPACE, chart_env.OPTIONS), (usual, (rendering.IN_MEMORY,))):
        found = rendering.objects(*options)
        granted = {item for some in rbac.granted(found).values() for item in some}
        assert "*" not in json.dumps(
            [item["rules"] for item in rendering.of_kind(found, "Role", "ClusterRole")]
        )
        secrets = {item for item in granted if item.resource.startswith("secrets")}
        assert {item.name for item in secrets if item.verb != "create"} == {"croupier-webhook-tls"}
        assert {item.namespace for item in secrets} == {namespace}
        assert rbac.cluster_role_grants(found) == {
            ("croupier-extender", "system:kube-scheduler"),
            ("croupier-extender", "system:volume-scheduler"),
        }, "only kube-scheduler has built-in roles"
        escalating = {"escalate", "bind", "impersonate"}
        assert not [
            item for item in granted if item.verb in escalating or item.resource == "serviceaccounts/token"
        ]


def test_missing_and_unused_permissions_are_detected():
    pods, nodes = Permission("", "pods", "list"), Permission("", "nodes", "list", name="mine")
    done = [AuditedRequest(Permission("", "pods", "list", "default"), "croupier", allowed=True)]
    other = [AuditedRequest(Permission("", "nodes", "list", name="theirs"), "croupier", allowed=False)]

    assert rbac.unused({pods, nodes}, done) == ["list nodes mine"]
    assert rbac.missing({pods, nodes}, [*done, *other]) == ["list nodes"]
    assert rbac.missing({Permission("", "pods", "list", "elsewhere")}, done) == ["list pods in default"]


@pytest.mark.parametrize("what", escalation.WRITES_TO_OTHER_NODE)
async def test_an_agent_cannot_write_to_another_node(finished_scenario, what):
    async with escalation.compromised_accounts(finished_scenario) as they:
        with pytest.raises((Forbidden, Invalid), match="alone"):
            await escalation.WRITES_TO_OTHER_NODE[what](they)


@pytest.mark.parametrize("what", escalation.FORBIDDEN_PODS)
async def test_other_pods_cannot_be_created(finished_scenario, what):
    pod, word = escalation.FORBIDDEN_PODS[what]
    async with escalation.compromised_accounts(finished_scenario) as they:
        with pytest.raises(Forbidden, match=f"with the configured images: this one.* {word}"):
            await they.starts(pod)


async def test_service_pods_can_be_created_and_other_pods_not_deleted(finished_scenario):
    async with escalation.compromised_accounts(finished_scenario) as they:
        for kind in (GFD, DCGM):
            assert (await they.starts(escalation.service_pod(kind))).metadata.name
        with pytest.raises(Forbidden, match="is none of them"):
            await they.starter.delete(kinds.PODS, "theirs", namespace=NAMESPACE)


def test_helm_reads_the_module_config(finished_scenario):
    known = "--api-versions=deckhouse.io/v1alpha1/ModuleConfig"  # helm template does not ask the cluster
    cluster = (f"--kubeconfig={finished_scenario.lab.kubeconfig}", "--dry-run=server", known)
    found = list(yaml.safe_load_all(chart.rendered(ROOT, "--set=settingsFrom=module", *cluster)))

    assert "croupier-ledger" in rendering.pods(found)
    assert {item["spec"]["replicas"] for item in rendering.of_kind(found, "Deployment")} == {2}
    assert rendering.named(found, "Certificate", "croupier-webhook")
    elsewhere = list(yaml.safe_load_all(chart.rendered(ROOT, *cluster)))
    assert not rendering.of_kind(elsewhere, "Certificate"), "https.mode is set in the ModuleConfig only"


CDI = {
    "simulated cards": (("--set=node.cards=simulated=H100:8",), {"--cdi=/var/run/cdi"}),
    "a runtime without CDI": (("--set=node.cards=simulated=H100:8", "--set=node.cdiDir="), set()),
    "real cards": ((), set()),
}


@pytest.mark.parametrize(("options", "wanted"), CDI.values(), ids=CDI)
def test_cdi_directory_of_simulated_cards(options, wanted):
    spec = rendering.pods(rendering.objects(*options))["croupier-node"]["spec"]
    (agent,) = spec["containers"]

    assert {item for item in agent["args"] if item.startswith("--cdi")} == wanted
    mounted = {item["mountPath"] for item in agent["volumeMounts"]}
    assert ("/var/run/cdi" in mounted) == bool(wanted)
    assert {item["name"] for item in agent["volumeMounts"]} == {item["name"] for item in spec["volumes"]}


def test_a_pod_keeps_its_card_when_the_ledger_is_migrated(finished_scenario):
    assert finished_scenario.results["before noon"] == finished_scenario.results["after noon"] != []


def test_the_second_replica_takes_over(finished_scenario):
    before, after = finished_scenario.results["leaders"]
    assert {before, after} == {"croupier-cpu-limits", "croupier-cpu-limits-2"}
    assert len(finished_scenario.results["team-3"]) == 1, "placed by the second extender and its scheduler"


def test_both_webhooks_serve_the_renewed_certificate(finished_scenario):
    assert [LEDGER in item for item in finished_scenario.results["webhooks"]] == [True, True]
    (part,) = (item for item in finished_scenario.parts if item.name == "available")
    touched = [
        item for item in requests_of(finished_scenario, part)[WEBHOOK] if item.right.resource == "secrets"
    ]
    assert touched == [], "cert-manager owns the Secret"


def test_an_extender_releases_the_card_of_a_pod_it_cannot_bind(finished_scenario):
    assert faults.UNBOUND in finished_scenario.results["gated"]


def test_a_session_of_one_page_is_valid_at_the_other(finished_scenario):
    viewer = finished_scenario.results["viewer"]

    assert viewer["user"] == "system:serviceaccount:default:default"
    assert viewer["actions"] == [], "reading only is the default"
    assert viewer["sees"] == {"everything": False, "cards": False, "namespaces": []}
    assert not any(finished_scenario.results["names that a viewer without rights gets"].values())


def test_disabled_processes_run_but_do_nothing(finished_scenario):
    disabled = finished_scenario.results["off"]

    assert set(disabled["ready"].values()) == {200}
    assert POOLS_DISABLED in disabled["pool"]
    assert "only Croupier serves gpu.mps.io/percent" in disabled["share"]
    assert disabled["card"], "another device plugin may serve it"
    assert not disabled["extender"]
    assert disabled["reservation"] not in ("Reserved", "Failed")


def test_enabled_again_work_continues(finished_scenario):
    assert finished_scenario.results["on"] in ("Reserved", "Failed"), "it was decided"
    assert finished_scenario.results["mark required"]
    assert {"SwitchedOff", "SwitchedOn", "SettingsTaken"} <= finished_scenario.results["events"]


def test_node_feature_discovery_accepts_the_rule(finished_scenario):
    if not nfd_crds.crds():
        pytest.skip("needs the CRDs of NFD: install Go, and network access once")
    (rule,) = rendering.of_kind(finished_scenario.objects, "NodeFeatureRule")
    found = finished_scenario.lab.kubectl(
        "get", "nodefeaturerule", rule["metadata"]["name"], "-o", "json"
    ).stdout

    assert json.loads(found)["spec"] == rule["spec"]


QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", ())]


@pytest.mark.parametrize(
    ("panel", "expression"), QUERIES, ids=[f"{item}-{at}" for at, (item, _) in enumerate(QUERIES)]
)
def test_every_panel_has_data(finished_scenario, panel, expression):
    if prometheus.program() is None:
        pytest.skip("needs prometheus: `make setup` downloads the Debian package")
    answer = finished_scenario.shown[expression]

    assert answer, f"{panel} is empty: {expression}"
    assert not all(math.isnan(float(item["value"][1])) for item in answer), (
        f"{panel} has no number: {expression}"
    )
