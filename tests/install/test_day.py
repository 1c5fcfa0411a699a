"""What a day shows: rights are exact, every panel has figures, and the chart's choices do what they say.

The API server wrote down who asked for what, while every process worked under its own account (living.py),
first with one book and then with the other. Then accounts try what whoever took one over would try.
"""

import json
import math
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from croupier.api import kinds
from croupier.core.nodes.bootstrap import DCGM, GFD
from croupier.core.pods.request import MARK
from croupier.kube.errors import Forbidden, Invalid
from croupier.wiring import chart
from tests.install import discovery, prometheus, rendering, rights, town, tries, trouble
from tests.install.living import AVAILABLE
from tests.install.rights import Deed, Right
from tests.install.town import EXTENDER, NAMESPACE, WEBHOOK, Part, Town
from tests.install.watching import DASHBOARD

SECONDS = 110
ROOT = Path(__file__).resolve().parents[2]
UPSTREAM = "kube-scheduler"
SETTINGS = ("croupier-settings", "croupier-settings-events")
"""Roles that follow from where settings stand, and from nothing else."""
RARE = {
    ("in memory", EXTENDER, "get nodereservations.mps.nvidia.com"): (
        "tests/book/test_switch.py",
        "switch._remove(one.api, stale",
    ),
}
"""By part of the day and account, what no day can be made to see; and the test that does, by its words."""


def deeds(lived: Town, part: Part) -> dict[str, set[Deed]]:
    """By account; of the upstream scheduler in the extender's pod what the chart grants it, its Lease."""
    done = rights.done(lived.page(part), NAMESPACE)
    return {
        account: {one for one in found if one.program != UPSTREAM or one.right.resource == "leases"}
        for account, found in done.items()
    }


@dataclass
class Office:
    """An account with the rights of one or more parts of the day, and all it did in them."""

    parts: list[str] = field(default_factory=list)
    rights: set[Right] = field(default_factory=set)
    deeds: set[Deed] = field(default_factory=set)


def offices(lived: Town) -> dict[tuple[str, frozenset[Right]], Office]:
    """An account that has other rights in another part (but for its settings) is another one there."""
    found: dict[tuple[str, frozenset[Right]], Office] = defaultdict(Office)
    for part in lived.parts:
        granted, done = rights.granted(part.objects), deeds(lived, part)
        own = rights.granted(part.objects, without=SETTINGS)
        for account, some in granted.items():
            office = found[account, frozenset(own.get(account, ()))]
            if account in done:
                office.parts.append(part.name)
                office.rights |= some
                office.deeds |= done[account]
    return dict(found)


@pytest.mark.parametrize("name", ["in memory", "available"])
def test_every_process_had_the_right_to_all_it_did(lived_in, name):
    (part,) = (one for one in lived_in.parts if one.name == name)
    granted, done = rights.granted(part.objects), deeds(lived_in, part)
    assert granted.keys() == set(rendering.pods(part.objects))

    assert {
        account: missing for account in done if (missing := rights.lacking(granted[account], done[account]))
    } == {}
    assert [str(one.right) for found in done.values() for one in found if not one.allowed] == []


def test_every_right_was_used_with_either_book(lived_in):
    found = offices(lived_in)
    assert [account for (account, _), office in found.items() if not office.parts] == [], "who did not work"
    unused = {
        (account, *office.parts): left
        for (account, _), office in found.items()
        if (
            left := [
                one for one in rights.idle(office.rights, office.deeds) if not rare(account, office, one)
            ]
        )
    }

    assert unused == {}


def rare(account: str, office: Office, right: str) -> bool:
    return any((part, account, right) in RARE for part in office.parts)


@pytest.mark.parametrize(("file", "words"), RARE.values(), ids=[" ".join(one) for one in RARE])
def test_what_no_day_sees_a_test_does(file, words):
    assert words in (ROOT / file).read_text()


def test_nothing_is_granted_by_wildcard_and_no_secret_but_our_own():
    for options in ((), town.OPTIONS, AVAILABLE[:1]):
        found = rendering.objects(*options)
        granted = {one for some in rights.granted(found).values() for one in some}
        assert "*" not in json.dumps(
            [one["rules"] for one in rendering.of_kind(found, "Role", "ClusterRole")]
        )
        secrets = {one for one in granted if one.resource.startswith("secrets")}
        assert {one.name for one in secrets if one.verb != "create"} == {"croupier-webhook-tls"}
        assert {one.namespace for one in secrets} == {NAMESPACE}
        assert rights.borrowed(found) == {
            ("croupier-extender", "system:kube-scheduler"),
            ("croupier-extender", "system:volume-scheduler"),
        }, "only the upstream scheduler has rights of the cluster's own"
        escalating = {"escalate", "bind", "impersonate"}
        assert not [
            one for one in granted if one.verb in escalating or one.resource == "serviceaccounts/token"
        ]


def test_the_comparison_notices_what_lacks_and_what_is_too_much():
    pods, nodes = Right("", "pods", "list"), Right("", "nodes", "list", name="mine")
    done = [Deed(Right("", "pods", "list", "default"), "croupier", allowed=True)]
    other = [Deed(Right("", "nodes", "list", name="theirs"), "croupier", allowed=False)]

    assert rights.idle({pods, nodes}, done) == ["list nodes mine"]
    assert rights.lacking({pods, nodes}, [*done, *other]) == ["list nodes"]
    assert rights.lacking({Right("", "pods", "list", "elsewhere")}, done) == ["list pods in default"]


@pytest.mark.parametrize("what", tries.OF_ANOTHER_NODE)
async def test_an_agent_writes_nothing_of_another_node(lived_in, what):
    async with tries.strangers(lived_in) as they:
        with pytest.raises((Forbidden, Invalid), match="alone"):
            await tries.OF_ANOTHER_NODE[what](they)


@pytest.mark.parametrize("what", tries.OTHER_PODS)
async def test_no_pod_is_started_but_those_of_services(lived_in, what):
    pod, word = tries.OTHER_PODS[what]
    async with tries.strangers(lived_in) as they:
        with pytest.raises(Forbidden, match=f"and no others: this one.* {word}"):
            await they.starts(pod)


async def test_those_of_services_are_started_and_nobody_else_is_ended(lived_in):
    async with tries.strangers(lived_in) as they:
        for kind in (GFD, DCGM):
            assert (await they.starts(tries.service_pod(kind))).metadata.name
        with pytest.raises(Forbidden, match="is none of them"):
            await they.starter.delete(kinds.PODS, "theirs", namespace=NAMESPACE)


def test_helm_reads_in_the_module_config_what_it_shall_install(lived_in):
    """Nothing of it is in the values."""
    known = "--api-versions=deckhouse.io/v1alpha1/ModuleConfig"  # which Helm asks the cluster for, but here
    cluster = (f"--kubeconfig={lived_in.lab.kubeconfig}", "--dry-run=server", known)
    found = list(yaml.safe_load_all(chart.rendered(ROOT, "--set=settingsFrom=module", *cluster)))

    assert "croupier-ledger" in rendering.pods(found)
    assert {one["spec"]["replicas"] for one in rendering.of_kind(found, "Deployment")} == {2}
    assert rendering.named(found, "Certificate", "croupier-webhook")
    elsewhere = list(yaml.safe_load_all(chart.rendered(ROOT, *cluster)))
    assert "croupier-ledger" not in rendering.pods(elsewhere)


CDI = {
    "simulated cards": (("--set=node.cards=simulated=H100:8",), {"--cdi=/var/run/cdi"}),
    "a runtime without CDI": (("--set=node.cards=simulated=H100:8", "--set=node.cdiDir="), set()),
    "real cards": ((), set()),
}


@pytest.mark.parametrize(("options", "wanted"), CDI.values(), ids=CDI)
def test_simulated_cards_are_described_for_the_container_runtime(options, wanted):
    spec = rendering.pods(rendering.objects(*options))["croupier-node"]["spec"]
    (agent,) = spec["containers"]

    assert {one for one in agent["args"] if one.startswith("--cdi")} == wanted
    mounted = {one["mountPath"] for one in agent["volumeMounts"]}
    assert ("/var/run/cdi" in mounted) == bool(wanted)
    assert {one["name"] for one in agent["volumeMounts"]} == {one["name"] for one in spec["volumes"]}


def test_from_memory_into_the_api_server_a_pod_keeps_its_card(lived_in):
    assert lived_in.told["before noon"] == lived_in.told["after noon"] != []


def test_the_second_of_two_goes_on_when_the_first_crashes(lived_in):
    before, after = lived_in.told["leaders"]
    assert {before, after} == {"croupier-cpu-limits", "croupier-cpu-limits-2"}
    assert len(lived_in.told["team-3"]) == 1, "the second extender and its scheduler placed a pod"


def test_both_webhooks_answer_and_serve_what_cert_manager_renewed(lived_in):
    assert [MARK in one for one in lived_in.told["webhooks"]] == [True, True]
    (part,) = (one for one in lived_in.parts if one.name == "available")
    touched = [one for one in deeds(lived_in, part)[WEBHOOK] if one.right.resource == "secrets"]
    assert touched == [], "the Secret is cert-manager's"


def test_an_extender_that_never_saw_a_pod_looks_and_gives_the_card_back(lived_in):
    assert trouble.UNBOUND in lived_in.told["gated"]


def test_switched_off_nobody_ends_and_nobody_works(lived_in):
    told = lived_in.told["off"]

    assert set(told["ready"].values()) == {200}
    assert "switched off" in told["pool"]
    assert MARK in told["card"]
    assert not told["extender"]
    assert told["reservation"] not in ("Reserved", "Failed")


def test_switched_on_again_everything_goes_on(lived_in):
    assert lived_in.told["on"] in ("Reserved", "Failed"), "it was decided"
    assert {"SwitchedOff", "SwitchedOn", "SettingsTaken"} <= lived_in.told["events"]


def test_node_feature_discovery_accepts_what_it_shall_say(lived_in):
    if not discovery.kinds():
        pytest.skip("its kinds are not here: that needs Go, and once a network")
    (rule,) = rendering.of_kind(lived_in.objects, "NodeFeatureRule")
    found = lived_in.lab.kubectl("get", "nodefeaturerule", rule["metadata"]["name"], "-o", "json").stdout

    assert json.loads(found)["spec"] == rule["spec"]


QUERIES = [
    (panel["title"], target["expr"])
    for panel in json.loads(DASHBOARD.read_text())["panels"]
    for target in panel.get("targets", ())
]


@pytest.mark.parametrize(
    ("panel", "expression"), QUERIES, ids=[f"{one}-{at}" for at, (one, _) in enumerate(QUERIES)]
)
def test_every_panel_shows_something(lived_in, panel, expression):
    if prometheus.program() is None:
        pytest.skip("prometheus is not here: `make setup` fetches the Debian package where it can")
    answer = lived_in.shown[expression]

    assert answer, f"{panel} is empty: {expression}"
    assert not all(math.isnan(float(one["value"][1])) for one in answer), (
        f"{panel} has no number: {expression}"
    )
