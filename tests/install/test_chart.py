"""Properties of the rendered chart for different values."""

import inspect
import json
import os
import re
import subprocess
import tomllib
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from croupier.api import settings
from croupier.cli import market_run
from tests.cli import command
from tests.install import rbac
from tests.install.rbac import Permission
from tests.install.rendering import (
    ALONE,
    IN_MEMORY,
    NODE_FEATURE_RULES,
    ROOT,
    named,
    objects,
    of_kind,
    pods,
)
from tools import chart
from tools.chart import HelmFailed

MPS = "croupier-mps"
AGENTS = {"croupier-node", "croupier-market", MPS}
CONTROLLERS = {
    "gpu-inventory-controller",
    "gpu-bootstrap-controller",
    "gpupool-controller",
    "croupier-cpu-limits",
    "gpu-admission-webhook",
    "croupier-extender",
    "croupier-ledger",
}
CHOICES: dict[str, tuple[str, ...]] = {
    "defaults": (),
    "one of each process": (ALONE,),
    "a ledger in memory": (IN_MEMORY,),
    "a scheduler elsewhere": ("--set=scheduler.enabled=false,extender.tlsSecret=tls",),
    "simulated cards": ("--set=node.cards=simulated=H100:8",),
    "settings of a module": ("--set=settingsFrom=module",),
    "cert-manager": ("--set=settings.https.mode=CertManager",),
    "a client certificate of the API server": (
        "--set=webhook.clientCASecret=api-server-ca,webhook.clientNames={kube-apiserver}",
    ),
    "many values": (
        "--set=settings.reservation.ttl=10m,settings.scheduling.defaultStrategy=BinPack",
        "--set=settings.logLevel=Debug,settings.highAvailability=true,bootstrap.gfdImage=gfd:1",
        "--set=settings.fallback.direction=down,settings.fallback.preferAvailable=true",
        "--set=settings.fallback.minMemory=10Gi,settings.fallback.whenNothingFits=Deny",
        "--set=apiServer.host=api,market.cgroupRoot=/pods",
    ),
    "another market": ("--set=market.dryRun=true,market.strict=true,market.target=80,market.raiseAfter=3",),
}


def commands(found: list[dict[str, Any]]) -> set[tuple[str, ...]]:
    containers = (item for pod in pods(found).values() for item in pod["spec"]["containers"])
    return {tuple(item["args"]) for item in containers if "command" not in item}


@pytest.fixture(params=CHOICES.values(), ids=list(CHOICES), scope="module")
def found(request):
    return objects(*request.param)


def test_every_process_has_its_own_account_and_probes(found):
    accounts = {item["metadata"]["name"] for item in of_kind(found, "ServiceAccount")}
    processes = {name: pod for name, pod in pods(found).items() if name != MPS}
    for name, pod in processes.items():
        assert pod["spec"]["serviceAccountName"] == name
        assert pod["metadata"]["labels"]["app.kubernetes.io/part-of"] == "croupier"
        for container in pod["spec"]["containers"]:
            assert {"livenessProbe", "readinessProbe", "resources"} <= container.keys()
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert accounts == set(processes)


def test_mps_daemons_run_without_an_account_and_are_never_restarted_by_a_probe():
    spec = pods(objects())[MPS]["spec"]
    assert "serviceAccountName" not in spec
    assert spec["automountServiceAccountToken"] is False
    (container,) = spec["containers"]
    assert not {"livenessProbe", "startupProbe"} & container.keys(), (
        "a restart ends the programs of all shares"
    )
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_all_but_the_agents_are_restricted(found):
    others = {name: pod["spec"] for name, pod in pods(found).items() if name not in AGENTS}
    assert others
    for spec in others.values():
        assert spec["securityContext"]["runAsNonRoot"]
        assert spec["topologySpreadConstraints"]
        assert [item for item in spec.get("volumes", []) if "hostPath" in item] == []
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_rbac_has_no_wildcards_and_only_own_accounts(found):
    roles = of_kind(found, "Role", "ClusterRole")
    assert "*" not in json.dumps([role["rules"] for role in roles])
    accounts = {item["metadata"]["name"] for item in of_kind(found, "ServiceAccount")}
    bindings = of_kind(found, "RoleBinding", "ClusterRoleBinding")
    assert {item["name"] for binding in bindings for item in binding["subjects"]} == accounts
    secrets = [rule for role in roles for rule in role["rules"] if "secrets" in rule["resources"]]
    assert {
        role["metadata"].get("namespace") for role in roles if any(item in role["rules"] for item in secrets)
    } <= {chart.NAMESPACE}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_every_process_accepts_its_arguments(choice):
    used = commands(objects(*choice))
    assert used
    for words in used - KNOWN:
        help_of = command.run([*words, "--help"], env=os.environ)
        assert help_of.code == 0, f"{words}: {help_of.err}"
        KNOWN.add(words)


KNOWN: set[tuple[str, ...]] = set()
"""Command lines that were already checked."""


def replicas(*options: str) -> dict[str, int]:
    return {
        item["metadata"]["name"]: item["spec"]["replicas"]
        for item in of_kind(objects(*options), "Deployment")
    }


def test_the_chart_has_two_of_each_process_and_the_ledger_in_the_api_server():
    """Also if it is rendered without a cluster: two replicas work on one node, too."""
    both = objects()

    assert replicas() == dict.fromkeys(CONTROLLERS, 2)
    assert replicas("--set=settings.highAvailability=true") == replicas()
    guarded = {item["metadata"]["name"] for item in of_kind(both, "PodDisruptionBudget")}
    assert guarded == CONTROLLERS
    stored = yaml.safe_load(named(both, "ConfigMap", "croupier-settings")["data"]["settings.yaml"])
    assert stored == {"capacityManager": "CRD"}
    assert settings.read(stored).book == "CRD"
    assert settings.read({}).book == "InMemory", "the default of a process without settings"


def test_without_high_availability_there_is_one_of_each():
    assert replicas(ALONE) == dict.fromkeys(CONTROLLERS, 1)
    assert of_kind(objects(ALONE), "PodDisruptionBudget") == []


def test_an_in_memory_ledger_has_one_extender():
    found = objects(IN_MEMORY)
    extender = named(found, "Deployment", "croupier-extender")

    assert (extender["spec"]["replicas"], extender["spec"]["strategy"]) == (1, {"type": "Recreate"})
    assert replicas(IN_MEMORY) == {
        **dict.fromkeys(CONTROLLERS - {"croupier-ledger"}, 2),
        "croupier-extender": 1,
    }
    assert "croupier-extender" not in {
        item["metadata"]["name"] for item in of_kind(found, "PodDisruptionBudget")
    }


def test_replicas_are_set_by_process():
    chosen = ("--set=replicas.webhook=3,replicas.limits=1",)

    assert replicas(*chosen) == {**replicas(), "gpu-admission-webhook": 3, "croupier-cpu-limits": 1}
    guarded = {item["metadata"]["name"] for item in of_kind(objects(*chosen), "PodDisruptionBudget")}
    assert guarded == CONTROLLERS - {"croupier-cpu-limits"}
    assert replicas(ALONE, "--set=replicas.extender=2")["croupier-extender"] == 2


def test_a_switch_to_the_crd_capacity_manager_finds_the_annotation_that_the_chart_wrote():
    """The chart looks up the previous capacity manager in the cluster, to stop it before the next starts."""
    template = (ROOT / chart.CHART / "templates/_process.tpl").read_text()
    read = re.findall(r'get \$annotations "(\S+)"', template)
    annotations = pods(objects(IN_MEMORY))["croupier-extender"]["metadata"]["annotations"]

    assert [annotations.get(name) for name in read] == ["InMemory", None]
    assert read[1] == "croupier.book", "the name in version 0.1"


def test_the_webhook_sets_the_second_scheduler_if_enabled():
    def schedulers(*options: str) -> list[str]:
        (webhook,) = pods(objects(*options))["gpu-admission-webhook"]["spec"]["containers"]
        return [item.partition("=")[2] for item in webhook["args"] if item.startswith("--scheduler=")]

    profiles = yaml.safe_load(named(objects(), "ConfigMap", "croupier-scheduler")["data"]["scheduler.yaml"])
    assert schedulers() == [item["schedulerName"] for item in profiles["profiles"]]
    assert schedulers(*CHOICES["a scheduler elsewhere"]) == []


def test_the_webhook_can_be_closed_to_all_but_the_api_server():
    def admitted(*options: str) -> list[dict[str, Any]]:
        policies = {item["metadata"]["name"]: item for item in of_kind(objects(*options), "NetworkPolicy")}
        (webhook,) = policies["gpu-admission-webhook"]["spec"]["ingress"]
        (health,) = policies["croupier"]["spec"]["ingress"]
        return [*webhook.get("from", ()), *health.get("from", ())]

    closed = (
        "--set=networkPolicy.apiServerCIDRs={10.0.0.10/32,fd00::1/128}",
        "--set=networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring",
    )
    assert admitted() == []
    assert admitted(*closed) == [
        {"ipBlock": {"cidr": "10.0.0.10/32"}},
        {"ipBlock": {"cidr": "fd00::1/128"}},
        {"namespaceSelector": {"matchLabels": {"team": "monitoring"}}},
    ]


def test_the_webhook_demands_a_client_certificate_if_a_ca_is_given():
    spec = pods(objects(*CHOICES["a client certificate of the API server"]))["gpu-admission-webhook"]["spec"]
    (webhook,), volumes = spec["containers"], {item["name"]: item["secret"] for item in spec["volumes"]}

    assert {"--client-ca=/client-ca/ca.crt", "--client-name=kube-apiserver"} <= set(webhook["args"])
    assert "/client-ca" in {item["mountPath"] for item in webhook["volumeMounts"]}
    assert volumes["client-ca"]["secretName"] == "api-server-ca"
    assert "volumes" not in pods(objects())["gpu-admission-webhook"]["spec"]


def test_the_market_has_the_defaults_of_its_command():
    def arguments(*options: str) -> dict[str, str]:
        (agent,) = pods(objects(*options))["croupier-market"]["spec"]["containers"]
        named = (item.removeprefix("--").partition("=") for item in agent["args"])
        return {name.replace("-", "_"): value for name, _, value in named}

    usual = {name: item.default for name, item in inspect.signature(market_run.run).parameters.items()}
    defaults, changed_values = arguments(), arguments(*CHOICES["another market"])
    times = ("target", "raise_after", "lower_after", "keep_peaks", "keep_latency_peaks")
    assert {name: float(defaults[name]) for name in times} == {name: usual[name] for name in times}
    assert not {"dry_run", "strict"} & defaults.keys()
    assert {"dry_run", "strict"} <= changed_values.keys()
    assert (changed_values["target"], changed_values["raise_after"]) == ("80", "3")


def test_controllers_that_report_silent_agents_may_read_a_lease_directly():
    """The informer may be stale, so the Lease is read directly before its agent is called silent."""
    granted = rbac.granted(objects())
    lease = Permission("coordination.k8s.io", "leases", "get", chart.NAMESPACE, "gpu-node-worker-1")

    readers = {
        account for account, rights in granted.items() if any(rbac.covers(right, lease) for right in rights)
    }
    assert {"gpu-inventory-controller", "gpu-bootstrap-controller", "croupier-cpu-limits"} <= readers


def test_pod_permissions_exist_only_with_images():
    def may_start(*options: str) -> bool:
        rules = named(objects(*options), "Role", "gpu-bootstrap-controller")["rules"]
        return any("pods" in rule["resources"] for rule in rules)

    assert may_start()
    assert may_start("--set=bootstrap.gfdImage=")
    assert not may_start("--set=bootstrap.gfdImage=,bootstrap.dcgmExporterImage=")


def test_services_have_default_images_that_the_policy_allows():
    found = objects()
    args = pods(found)["gpu-bootstrap-controller"]["spec"]["containers"][0]["args"]
    images = [arg.partition("=")[2] for arg in args if "-image=" in arg]
    policy = named(found, "ValidatingAdmissionPolicy", "croupier-service-pods")

    assert len(images) == 2
    allowed = next(item["expression"] for item in policy["spec"]["variables"] if item["name"] == "images")
    assert all(re.fullmatch(r"nvcr\.io/nvidia/[a-z0-9/-]+:[a-z0-9.-]+", image) for image in images)
    assert all(f"'{image}'" in allowed for image in images)


def test_with_cert_manager_there_are_no_secret_permissions():
    found = objects("--set=webhook.certManager.enabled=true,webhook.certManager.issuer.name=mine")

    certificate = named(found, "Certificate", "croupier-webhook")
    assert certificate["spec"]["issuerRef"] == {"kind": "Issuer", "name": "mine"}
    assert of_kind(found, "Issuer") == []
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        registration = named(found, kind, "croupier-webhook")
        assert registration["metadata"]["annotations"] == {
            "cert-manager.io/inject-ca-from": "d8-gpu-operator/croupier-webhook"
        }
    assert "secrets" not in json.dumps([item["rules"] for item in of_kind(found, "Role", "ClusterRole")])


def test_crds_are_kept_by_default():
    def policies(*options: str) -> set[str | None]:
        definitions = of_kind(objects(*options), "CustomResourceDefinition")
        return {
            item["metadata"].get("annotations", {}).get("helm.sh/resource-policy") for item in definitions
        }

    assert policies() == {"keep"}
    assert policies("--set=crds.keep=false") == {None}
    assert policies("--set=crds.install=false") == set()


def test_the_node_feature_rule_needs_nfd():
    assert of_kind(objects(), "NodeFeatureRule") == []
    (rule,) = of_kind(objects(NODE_FEATURE_RULES), "NodeFeatureRule")
    said = "".join(item["labelsTemplate"] for item in rule["spec"]["rules"])
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


def test_the_agent_of_simulated_cards_is_not_privileged():
    spec = pods(objects("--set=node.cards=simulated=H100:8"))["croupier-node"]["spec"]
    (agent,) = spec["containers"]
    assert "hostPID" not in spec
    assert "privileged" not in agent["securityContext"]
    assert agent["securityContext"]["capabilities"] == {"drop": ["ALL"]}


GUARDS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "by default": ((), {"croupier-guard": "Warn"}),
    "Deny": (("--set=settings.guard.mode=Deny",), {"croupier-guard": "Deny"}),
    "Void": (("--set=settings.guard.mode=Void",), {"croupier-guard": "Void"}),
    "Void also for images": (
        ("--set=settings.guard.mode=Void,settings.guard.images=Always",),
        {"croupier-guard": "Void", "croupier-guard-images": "Void"},
    ),
    "images without Void": (
        ("--set=settings.guard.mode=Deny,settings.guard.images=Always",),
        {"croupier-guard": "Deny"},
    ),
    "Off": (("--set-string=settings.guard.mode=Off",), {}),
}


@pytest.mark.parametrize(("options", "expected"), GUARDS.values(), ids=GUARDS)
def test_the_guard_is_installed_as_set(options, expected):
    found = objects(*options)
    bindings = [
        item
        for kind in ("ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding")
        for item in of_kind(found, kind)
        if item["metadata"]["name"].startswith("croupier-guard")
    ]
    modes = {
        item["metadata"]["name"]: item["spec"].get("validationActions", ["Void"])[0] for item in bindings
    }
    policies = {
        item["metadata"]["name"]
        for kind in ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
        for item in of_kind(found, kind)
    }
    assert modes == expected
    assert expected.keys() <= policies
    assert "croupier-grant-variables" in policies


def test_void_needs_mutating_policies():
    void = ("--set=settings.guard.mode=Void", "--kube-version=1.35.0")
    with pytest.raises(HelmFailed, match=r"Void needs MutatingAdmissionPolicies.*or set the mode to Deny"):
        objects(*void)

    beta = objects(*void, "--api-versions=admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy")
    kinds = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
    versions = {item["apiVersion"] for kind in kinds for item in of_kind(beta, kind)}
    assert versions == {"admissionregistration.k8s.io/v1beta1"}


REFUSED = {
    "a misspelt value": ("--set=images.tag=1", "images"),
    "a misspelt setting": ("--set=settings.reservations.ttl=1m", "reservations"),
    "an invalid duration": ("--set=settings.reservation.ttl=soon", "ttl"),
    "scheduler and TLS secret": ("--set=extender.tlsSecret=mine", "exclude each other"),
    "unknown cards": ("--set=node.cards=amd", "cards"),
    "a target above 100 %": ("--set=market.target=101", "target"),
    "zero seconds": ("--set=market.lowerAfter=0", "lowerAfter"),
    "an address that is no CIDR": ("--set=networkPolicy.apiServerCIDRs={master-1}", "apiServerCIDRs"),
    "two extenders with a ledger in memory": (
        "--set=replicas.extender=2,settings.capacityManager=InMemory",
        "replicas.extender must be 1",
    ),
    "no replicas": ("--set=replicas.webhook=0", "webhook"),
    "replicas of an unknown process": ("--set=replicas.scheduler=2", "scheduler"),
    "values of another version": ("--set=podSecurityContext=null", "reset-then-reuse-values"),
}


@pytest.mark.parametrize(("option", "word"), REFUSED.values(), ids=REFUSED)
def test_invalid_values_are_rejected(option, word):
    with pytest.raises(HelmFailed, match=word):
        objects(option)


def test_the_values_match_the_schema():
    schema = json.loads((ROOT / chart.CHART / "values.schema.json").read_text())
    values = yaml.safe_load((ROOT / chart.CHART / "values.yaml").read_text())

    Draft7Validator.check_schema(schema)
    assert list(Draft7Validator(schema).iter_errors(values)) == []
    assert set(values) == set(schema["properties"]) - {"global"}


def test_the_chart_has_the_version_of_the_package():
    metadata = yaml.safe_load((ROOT / chart.CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert metadata["version"] == metadata["appVersion"] == project["version"]


def test_nothing_generated_is_stale():
    assert chart.stale(ROOT) == []


def test_a_changed_source_makes_the_chart_stale(tmp_path):
    for folder in ("deployments", "charts"):
        subprocess.run(["cp", "-r", str(ROOT / folder), str(tmp_path / folder)], check=True)
    chart.write(tmp_path, lambda *_: "")
    changed = tmp_path / "deployments/node/rbac.yaml"
    changed.write_text(changed.read_text().replace("delete", "deletecollection"))

    assert chart.stale(tmp_path) == ["charts/croupier/files/rbac/node.yaml is stale"]
    assert "charts/croupier/files/rbac/node.yaml" in chart.write(tmp_path, lambda *_: "")
    assert chart.stale(tmp_path) == []
