"""The chart, rendered: what is promised of an installation holds for every choice of values."""

import inspect
import json
import subprocess
import tomllib
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from croupier.cli import market_run
from croupier.wiring import chart
from croupier.wiring.chart import NoHelm
from tests.cli.command import CROUPIER
from tests.install.rendering import (
    HIGHLY_AVAILABLE,
    NODE_FEATURE_RULES,
    ROOT,
    named,
    objects,
    of_kind,
    pods,
)

AGENTS = {"croupier-node", "croupier-market"}
CONTROLLERS = {
    "gpu-inventory-controller",
    "gpu-bootstrap-controller",
    "gpupool-controller",
    "croupier-cpu-limits",
    "gpu-admission-webhook",
    "croupier-extender",
}
CHOICES: dict[str, tuple[str, ...]] = {
    "as it comes": (),
    "highly available": (HIGHLY_AVAILABLE,),
    "a scheduler elsewhere": ("--set=scheduler.enabled=false,extender.tlsSecret=tls",),
    "simulated cards": ("--set=node.cards=simulated=H100:8",),
    "settings of a module": ("--set=settingsFrom=module",),
    "cert-manager": ("--set=settings.https.mode=CertManager",),
    "much set": (
        "--set=settings.reservation.ttl=10m,settings.scheduling.defaultStrategy=BinPack",
        "--set=settings.logLevel=Debug,settings.capacityManager=CRD,bootstrap.gfdImage=gfd:1",
        "--set=settings.fallback.direction=down,settings.fallback.preferAvailable=true",
        "--set=settings.fallback.minMemory=10Gi,settings.fallback.whenNothingFits=Deny",
        "--set=apiServer.host=api,market.cgroupRoot=/pods",
    ),
    "another market": ("--set=market.dryRun=true,market.strict=true,market.target=80,market.raiseAfter=3",),
}


def commands(found: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    containers = (one for pod in pods(found).values() for one in pod["spec"]["containers"])
    return {tuple(one["args"]) for one in containers if "command" not in one}


@pytest.fixture(params=CHOICES.values(), ids=list(CHOICES), scope="module")
def found(request):
    return objects(*request.param)


def test_every_process_has_an_account_of_its_own_and_says_how_it_is(found):
    accounts = {one["metadata"]["name"] for one in of_kind(found, "ServiceAccount")}
    for name, pod in pods(found).items():
        assert pod["spec"]["serviceAccountName"] == name
        assert pod["metadata"]["labels"]["app.kubernetes.io/part-of"] == "croupier"
        for container in pod["spec"]["containers"]:
            assert {"livenessProbe", "readinessProbe", "resources"} <= container.keys()
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert accounts == set(pods(found))


def test_all_but_the_agents_run_with_little(found):
    for name, pod in pods(found).items():
        spec = pod["spec"]
        if name in AGENTS:
            continue
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["topologySpreadConstraints"]
        assert [one for one in spec.get("volumes", []) if "hostPath" in one] == []
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_no_right_is_a_wildcard_and_all_are_of_our_accounts(found):
    roles = of_kind(found, "Role", "ClusterRole")
    assert "*" not in json.dumps([role["rules"] for role in roles])
    accounts = {one["metadata"]["name"] for one in of_kind(found, "ServiceAccount")}
    bindings = of_kind(found, "RoleBinding", "ClusterRoleBinding")
    assert {one["name"] for binding in bindings for one in binding["subjects"]} == accounts
    secrets = [rule for role in roles for rule in role["rules"] if "secrets" in rule["resources"]]
    assert {
        role["metadata"].get("namespace") for role in roles if any(one in role["rules"] for one in secrets)
    } <= {chart.NAMESPACE}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_every_process_is_started_with_options_it_knows(choice):
    for command in commands(objects(*choice)) - KNOWN:
        ended = subprocess.run([*CROUPIER, *command, "--help"], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{command}: {ended.stderr}"
        KNOWN.add(command)


KNOWN: set[tuple[str, ...]] = set()
"""Most are the same whatever is chosen, and to ask each takes a second."""


def test_two_of_everything_and_a_ledger_in_the_api_server_when_highly_available():
    alone, both = objects(), objects(HIGHLY_AVAILABLE)

    assert {name for name in pods(alone) if name not in AGENTS} == CONTROLLERS
    assert {name for name in pods(both) if name not in AGENTS} == {*CONTROLLERS, "croupier-ledger"}
    assert {one["spec"]["replicas"] for one in of_kind(alone, "Deployment")} == {1}
    assert {one["spec"]["replicas"] for one in of_kind(both, "Deployment")} == {2}
    guarded = {one["metadata"]["name"] for one in of_kind(both, "PodDisruptionBudget")}
    assert guarded == {*CONTROLLERS, "croupier-ledger"}
    assert of_kind(alone, "PodDisruptionBudget") == []


def test_a_book_in_memory_has_one_keeper_at_a_time():
    extender = named(objects(), "Deployment", "croupier-extender")
    assert (extender["spec"]["replicas"], extender["spec"]["strategy"]) == (1, {"type": "Recreate"})


def test_pods_are_given_to_the_second_scheduler_where_there_is_one():
    def handed_to(*options: str) -> list[str]:
        (webhook,) = pods(objects(*options))["gpu-admission-webhook"]["spec"]["containers"]
        return [one.partition("=")[2] for one in webhook["args"] if one.startswith("--scheduler=")]

    profiles = yaml.safe_load(named(objects(), "ConfigMap", "croupier-scheduler")["data"]["scheduler.yaml"])
    assert handed_to() == [one["schedulerName"] for one in profiles["profiles"]]
    assert handed_to(*CHOICES["a scheduler elsewhere"]) == []


def test_the_market_comes_as_its_command_does_and_can_be_told_otherwise():
    def told(*options: str) -> dict[str, str]:
        (agent,) = pods(objects(*options))["croupier-market"]["spec"]["containers"]
        named = (one.removeprefix("--").partition("=") for one in agent["args"])
        return {name.replace("-", "_"): value for name, _, value in named}

    usual = {name: one.default for name, one in inspect.signature(market_run.run).parameters.items()}
    as_it_comes, otherwise = told(), told(*CHOICES["another market"])
    times = ("target", "raise_after", "lower_after", "keep_peaks", "keep_latency_peaks")
    assert {name: float(as_it_comes[name]) for name in times} == {name: usual[name] for name in times}
    assert not {"dry_run", "strict"} & as_it_comes.keys()
    assert {"dry_run", "strict"} <= otherwise.keys()
    assert (otherwise["target"], otherwise["raise_after"]) == ("80", "3")


def test_only_who_may_start_pods_does():
    def may_start(*options: str) -> bool:
        rules = named(objects(*options), "Role", "gpu-bootstrap-controller")["rules"]
        return any("pods" in rule["resources"] for rule in rules)

    assert not may_start()
    assert may_start("--set=bootstrap.dcgmExporterImage=dcgm:1")


def test_cert_manager_takes_our_secret_out_of_the_game():
    found = objects("--set=webhook.certManager.enabled=true,webhook.certManager.issuer.name=mine")

    certificate = named(found, "Certificate", "croupier-webhook")
    assert certificate["spec"]["issuerRef"] == {"kind": "Issuer", "name": "mine"}
    assert of_kind(found, "Issuer") == []
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        registration = named(found, kind, "croupier-webhook")
        assert registration["metadata"]["annotations"] == {
            "cert-manager.io/inject-ca-from": "d8-gpu-operator/croupier-webhook"
        }
    assert "secrets" not in json.dumps([one["rules"] for one in of_kind(found, "Role", "ClusterRole")])


def test_kinds_stay_unless_somebody_says_otherwise():
    def policies(*options: str) -> set[str | None]:
        definitions = of_kind(objects(*options), "CustomResourceDefinition")
        return {one["metadata"].get("annotations", {}).get("helm.sh/resource-policy") for one in definitions}

    assert policies() == {"keep"}
    assert policies("--set=crds.keep=false") == {None}
    assert policies("--set=crds.install=false") == set()


def test_what_nfd_shall_say_is_there_where_nfd_is():
    assert of_kind(objects(), "NodeFeatureRule") == []
    (rule,) = of_kind(objects(NODE_FEATURE_RULES), "NodeFeatureRule")
    said = "".join(one["labelsTemplate"] for one in rule["spec"]["rules"])
    for label in (
        "device.{{ printf",
        ".vendor=",
        ".device=",
        ".class=",
        "kernel.version.",
        "os.id=",
        "os.version=",
    ):
        assert label in said


def test_the_agent_of_simulated_cards_owns_no_machine():
    (agent,) = pods(objects("--set=node.cards=simulated=H100:8"))["croupier-node"]["spec"]["containers"]
    assert "privileged" not in agent["securityContext"]
    assert agent["securityContext"]["capabilities"] == {"drop": ["ALL"]}


REFUSED = {
    "a misspelt value": ("--set=images.tag=1", "images"),
    "a misspelt setting": ("--set=settings.reservations.ttl=1m", "reservations"),
    "a span nobody can read": ("--set=settings.reservation.ttl=soon", "ttl"),
    "two ways to be asked": ("--set=extender.tlsSecret=mine", "exclude each other"),
    "cards of nowhere": ("--set=node.cards=amd", "cards"),
    "more of a node than there is": ("--set=market.target=101", "target"),
    "no time at all": ("--set=market.lowerAfter=0", "lowerAfter"),
    "another namespace": ("--namespace=mine", "d8-gpu-operator"),
}


@pytest.mark.parametrize(("option", "word"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused(option, word):
    with pytest.raises(NoHelm, match=word):
        objects(option)


def test_the_values_are_as_their_schema_says():
    schema = json.loads((ROOT / chart.CHART / "values.schema.json").read_text())
    values = yaml.safe_load((ROOT / chart.CHART / "values.yaml").read_text())

    Draft7Validator.check_schema(schema)
    assert list(Draft7Validator(schema).iter_errors(values)) == []
    assert set(values) == set(schema["properties"]) - {"global"}


def test_the_chart_has_our_version():
    told = yaml.safe_load((ROOT / chart.CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert told["version"] == told["appVersion"] == project["version"]


def test_nothing_generated_is_stale():
    assert chart.stale(ROOT) == []


def test_a_changed_source_is_noticed(tmp_path):
    for folder in ("deployments", "charts"):
        subprocess.run(["cp", "-r", str(ROOT / folder), str(tmp_path / folder)], check=True)
    chart.write(tmp_path, lambda _: "")
    changed = tmp_path / "deployments/node/rbac.yaml"
    changed.write_text(changed.read_text().replace("delete", "deletecollection"))

    assert chart.stale(tmp_path) == ["charts/croupier/files/rbac/node.yaml is stale"]
    assert "charts/croupier/files/rbac/node.yaml" in chart.write(tmp_path, lambda _: "")
    assert chart.stale(tmp_path) == []
