"""What all objects of the chart have in common: namespace, labels, names; and values for every pod."""

import re
import subprocess
from typing import Any

import pytest
import yaml

from tests.install import rendering
from tests.install.rendering import ROOT, all_objects, named, objects, of_kind, pods
from tools import chart, chart_readme

EVERYTHING = (
    "--set=ui.enabled=true,ui.ingress.enabled=true,ui.ingress.host=page",
    "--set=settings.guard.mode=Void,settings.guard.images=Always,namespace.create=true",
    "--api-versions=monitoring.coreos.com/v1/PrometheusRule",
    rendering.NODE_FEATURE_RULES,
)
CHOICES: dict[str, tuple[str, ...]] = {
    "everything": EVERYTHING,
    "schedulers elsewhere": (
        "--set=scheduler.enabled=false,extender.tlsSecret=tls,webhook.certManager.enabled=true",
    ),
    "a ledger in memory": (rendering.IN_MEMORY,),
}
LABELS = {
    "app.kubernetes.io/name": "croupier",
    "app.kubernetes.io/instance": "croupier",
    "app.kubernetes.io/version": "0.1.0",
    "app.kubernetes.io/part-of": "croupier",
    "app.kubernetes.io/managed-by": "Helm",
    "helm.sh/chart": "croupier-0.1.0",
}
COMPONENTS = {
    *(
        "inventory",
        "bootstrap",
        "pools",
        "limits",
        "ledger",
        "webhook",
        "extender",
        "node",
        "market",
        "mps",
        "ui",
    ),
    *("crds", "policies", "settings", "access", "network", "monitoring", "features", "namespace", "doctor"),
}
NAME = re.compile(
    r"(croupier|gpu-inventory-controller|gpu-bootstrap-controller|gpupool-controller|gpu-admission-webhook)(-[a-z]+)*"
)
"""`croupier`, or an account whose name is a contract: it is also a source of Events and a field manager."""
HERE = ("Role", "RoleBinding", "ServiceAccount", "Deployment", "DaemonSet", "Service", "ConfigMap", "Secret")


@pytest.fixture(params=CHOICES.values(), ids=list(CHOICES), scope="module")
def found(request):
    return all_objects(*request.param)


def test_helm_needs_no_values_and_finds_no_fault():
    path = str(ROOT / chart.CHART)
    for command in (("template", path), ("lint", "--strict", path)):
        ended = subprocess.run([rendering.helm(), *command], capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_object_has_the_recommended_labels(found):
    for item in found:
        labels = item["metadata"]["labels"]
        assert labels.items() >= LABELS.items(), item["metadata"]
        assert labels["app.kubernetes.io/component"] in COMPONENTS, item["metadata"]


def test_every_pod_has_the_labels_of_its_process(found):
    owners = of_kind(found, "Deployment", "DaemonSet")
    assert owners
    for item in owners:
        template = item["spec"]["template"]["metadata"]["labels"]
        assert template == item["metadata"]["labels"]


def test_selectors_are_those_of_the_first_version(found):
    """The selector of a Deployment is immutable: with another one, an upgrade would be refused."""
    for item in of_kind(found, "Deployment", "DaemonSet"):
        assert item["spec"]["selector"] == {"matchLabels": {"app": item["metadata"]["name"]}}
    names = {item["metadata"]["name"] for item in of_kind(found, "Deployment", "DaemonSet")}
    services = [item["spec"]["selector"]["app"] for item in of_kind(found, "Service")]
    budgets = [
        item["spec"]["selector"]["matchLabels"]["app"] for item in of_kind(found, "PodDisruptionBudget")
    ]
    assert {*services, *budgets} <= names


def test_names_follow_one_scheme(found):
    others = ("CustomResourceDefinition", "Namespace")
    names = {item["metadata"]["name"] for item in found if item["kind"] not in others}
    assert {name for name in names if not NAME.fullmatch(name)} == set()


def test_plain_manifests_do_not_claim_to_be_of_helm():
    applied = list(yaml.load_all((ROOT / chart.RENDERED).read_text(), Loader=yaml.CSafeLoader))
    labels = [set(item["metadata"]["labels"]) for item in applied if item]

    assert len(labels) > 60
    assert all(set(LABELS) - each == {"app.kubernetes.io/managed-by", "helm.sh/chart"} for each in labels)
    assert "helm.sh" not in (ROOT / chart.RENDERED).read_text()


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_any_namespace_is_that_of_all_objects(choice):
    """Also in policies, registrations and certificates that name the namespace or an account."""
    here, there = all_objects(*choice), all_objects(*choice, "--namespace=mine")

    assert chart.NAMESPACE not in yaml.safe_dump(there)
    assert _without_secrets(there) == _moved(_without_secrets(here), "mine")
    places = {item["metadata"].get("namespace") for item in there if item["kind"] in HERE}
    assert places == {"mine", "default"}, "the test of the webhook creates its pod in default"


def test_another_namespace_is_trusted_and_excluded_as_the_default_one():
    found = objects("--namespace=mine")
    policy = named(found, "ValidatingAdmissionPolicy", "croupier-protect-cards")
    (condition,) = policy["spec"]["matchConditions"]
    mutating = named(found, "MutatingWebhookConfiguration", "croupier-webhook")["webhooks"][0]

    assert "'system:serviceaccount:mine:gpupool-controller'" in condition["expression"]
    assert mutating["clientConfig"]["service"]["namespace"] == "mine"
    assert mutating["namespaceSelector"]["matchExpressions"][0]["values"] == ["kube-system", "mine"]


def _moved(found: list[dict[str, Any]], namespace: str) -> list[dict[str, Any]]:
    """The objects as they are in another namespace; checksums of moved files differ."""
    text = yaml.safe_dump_all(found, width=100000).replace(chart.NAMESPACE, namespace)
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


def _without_secrets(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what is random or computed from a file: session keys and checksums; in one order."""
    text = re.sub(
        r"checksum/scheduler: .*", "checksum/scheduler: any", yaml.safe_dump_all(found, width=100000)
    )
    left = [item for item in yaml.load_all(text, Loader=yaml.CSafeLoader) if item["kind"] != "Secret"]
    return sorted(left, key=_place)


def _place(item: dict[str, Any]) -> tuple[str, str, bool]:
    meta = item["metadata"]
    return item["kind"], meta["name"], meta.get("namespace") == "default"


def test_every_process_learns_its_namespace_from_its_pod(found):
    source = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    for name, pod in pods(found).items():
        if name != "croupier-mps":  # it does not use the API server
            env = {item["name"]: item.get("valueFrom") for item in pod["spec"]["containers"][0]["env"]}
            assert env["POD_NAMESPACE"] == source, name


def test_labels_and_annotations_of_pods_are_added_and_replace_none_of_ours():
    mine = (
        "--set=podLabels.team=gpu,podLabels.app=theirs",
        "--set=podAnnotations.sidecar=off",
    )
    for name, pod in pods(objects(*mine)).items():
        assert pod["metadata"]["labels"].items() >= {"team": "gpu", "app": name}.items()
        assert pod["metadata"]["annotations"]["sidecar"] == "off"
    extender = pods(objects(*mine))["croupier-extender"]["metadata"]["annotations"]
    assert extender["croupier.capacityManager"] == "CRD"


def test_security_contexts_are_values():
    chosen = (
        "--set=podSecurityContext.runAsUser=null,podSecurityContext.fsGroup=7",
        "--set=securityContext.seLinuxOptions.type=mine",
        "--set=node.securityContext.privileged=false,node.mps.securityContext.runAsUser=5",
    )
    found, usual = pods(objects(*chosen)), pods(objects())

    for name in found.keys() - {"croupier-node", "croupier-mps"}:
        spec, before = found[name]["spec"], usual[name]["spec"]
        expected = {key: value for key, value in before["securityContext"].items() if key != "runAsUser"}
        assert spec["securityContext"] == {**expected, "fsGroup": 7}
        for container in spec["containers"]:
            assert container["securityContext"]["seLinuxOptions"] == {"type": "mine"}
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert found["croupier-node"]["spec"]["containers"][0]["securityContext"] == {"privileged": False}
    assert found["croupier-mps"]["spec"]["containers"][0]["securityContext"] == {"runAsUser": 5}
    assert usual["croupier-node"]["spec"]["containers"][0]["securityContext"]["privileged"] is True


def test_affinity_is_a_value_of_the_processes_and_of_each_agent():
    rule = "nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight"
    found = pods(
        objects(*(f"--set={part}affinity.{rule}={n}" for n, part in enumerate(("", "node.", "market."), 1)))
    )
    weights = {
        name: pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0][
            "weight"
        ]
        for name, pod in found.items()
    }

    agents = {"croupier-node": 2, "croupier-mps": 2, "croupier-market": 3}
    assert weights == {name: agents.get(name, 1) for name in found}
    assert "topologySpreadConstraints" in found["croupier-extender"]["spec"]


PEERS = {
    "metricsFrom": ("croupier", "ingress", "from", "health"),
    "apiServerPeers": ("croupier", "egress", "to", 443),
    "extenderFrom": ("croupier-extender", "ingress", "from", "extender"),
    "uiFrom": ("croupier-ui", "ingress", "from", "ui"),
}


@pytest.mark.parametrize("value", PEERS)
def test_peers_of_network_policies_are_values(value):
    policy, direction, key, port = PEERS[value]
    base = ("--set=ui.enabled=true,scheduler.enabled=false,extender.tlsSecret=tls",)
    chosen = f"--set=networkPolicy.{value}[0].podSelector.matchLabels.team=mine"

    def peers(*options: str) -> Any:
        spec = named(objects(*base, *options), "NetworkPolicy", policy)["spec"][direction]
        (rule,) = (item for item in spec if port in [each["port"] for each in item["ports"]])
        return rule.get(key)

    assert peers() is None
    assert peers(chosen) == [{"podSelector": {"matchLabels": {"team": "mine"}}}]


def test_names_are_resolved_wherever_the_api_server_may_be():
    policy = named(
        objects("--set=networkPolicy.apiServerPeers[0].ipBlock.cidr=10.0.0.1/32"), "NetworkPolicy", "croupier"
    )
    (names,) = (rule for rule in policy["spec"]["egress"] if "to" not in rule)
    assert {item["port"] for item in names["ports"]} == {53}


def test_helm_test_runs_doctor_and_leaves_no_rights():
    tests = [item for item in all_objects() if item not in objects()]

    assert {item["kind"] for item in tests} == {
        *("Pod", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    }
    for item in tests:
        annotations = item["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "test"
        kept = "hook-succeeded" not in annotations["helm.sh/hook-delete-policy"]
        assert kept is (item["kind"] == "Pod"), "its log is printed after the test"
    (pod,) = of_kind(tests, "Pod")
    (container,) = pod["spec"]["containers"]
    assert container["args"] == ["doctor", f"--namespace={chart.NAMESPACE}"]
    assert pod["spec"]["serviceAccountName"] == "croupier-doctor"
    weights = {item["kind"]: int(item["metadata"]["annotations"]["helm.sh/hook-weight"]) for item in tests}
    assert weights.pop("Pod") > max(weights.values()), "its rights exist before it"


def test_all_objects_of_the_test_have_the_name_of_its_pod():
    """`helm test --logs` asks for the log of a pod with the name of each of them."""
    for namespace in (chart.NAMESPACE, "default"):
        found = all_objects(f"--namespace={namespace}")
        tests = [item for item in found if "helm.sh/hook" in item["metadata"].get("annotations", {})]
        assert {item["metadata"]["name"] for item in tests} == {"croupier-doctor"}
        identities = [(item["kind"], item["metadata"].get("namespace")) for item in tests]
        assert len(set(identities)) == len(identities)
        rules = [rule for item in tests if item["kind"] == "Role" for rule in item["rules"]]
        assert {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]} in rules
        assert {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]} in rules


def test_the_account_of_the_test_may_create_only_the_pod_of_its_probe():
    rules = [
        (item["metadata"].get("namespace"), rule["resources"], set(rule["verbs"]))
        for item in all_objects()
        if item["kind"].endswith("Role") and item["metadata"]["name"].startswith("croupier-doctor")
        for rule in item["rules"]
    ]
    writing = [(where, what) for where, what, verbs in rules if verbs - {"get", "list"}]
    assert writing == [(None, ["subjectaccessreviews"]), ("default", ["pods"])]


def test_the_readme_describes_every_value():
    values = (ROOT / chart_readme.VALUES).read_text()
    rows = {row.key: row for row in chart_readme.rows_of(values)}
    groups = {key for key, row in rows.items() if row.description}

    described = {key for key in rows if any(key == group or key.startswith(f"{group}.") for group in groups)}
    assert rows.keys() - described == set()
    assert {key.partition(".")[0] for key in rows} == set(yaml.safe_load(values))
    assert rows["image.pullPolicy"].default == "IfNotPresent"
    assert rows["node.tolerations"].default == "[{operator: Exists}]"
    assert (ROOT / chart_readme.README).read_text() == chart_readme.render(values)


def test_the_readme_takes_the_comment_above_a_value():
    rows = chart_readme.rows_of(
        "# Not of a value.\n\n# A group.\na:\n  b: 1\n  # One\n  # comment.\n  c: ''\n"
    )

    assert [(row.key, row.default, row.description) for row in rows] == [
        ("a", "", "A group."),
        ("a.b", "1", ""),
        ("a.c", '""', "One comment."),
    ]
