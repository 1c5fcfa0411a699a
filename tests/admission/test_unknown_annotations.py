"""A warning for unknown annotations with our prefixes, given by the API server itself, without a webhook."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from croupier.admission import annotation_policy, configurations, known_annotations
from croupier.admission.known_annotations import ANNOTATIONS, LABELS, PREFIXES, RESOURCES
from croupier.api.crds import KINDS
from croupier_lab import shared_cluster
from croupier_lab.cluster import Cluster
from tests.admission.cluster_env import pod
from tests.api.scenario_tables import EXAMPLES, ROOT, merged
from tests.polling import until_blocking

NAME: Final = "test-unknown-annotations"
TYPO: Final = {"gpu.mps.io/card": "2"}
KNOWN: Final = {"gpu.mps.io/cards": "2", "mbcas.io/max-cpu": "2", "example.com/card": "1"}
MEANT: Final = "annotation gpu.mps.io/card is not known; did you mean gpu.mps.io/cards?"

Raw = dict[str, Any]


def template(annotations: dict[str, str]) -> Raw:
    body = pod("any", {}, annotations)
    return {"metadata": {"labels": {"app": "any"}, "annotations": annotations}, "spec": body["spec"]}


def workload(kind: str, annotations: dict[str, str], **spec: Any) -> Raw:
    group = "batch" if kind in ("Job", "CronJob") else "apps"
    return {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": "any"},
        "spec": {"template": template(annotations), **spec},
    }


def deployment(annotations: dict[str, str]) -> Raw:
    return workload("Deployment", annotations, selector={"matchLabels": {"app": "any"}})


def job(annotations: dict[str, str]) -> Raw:
    made = workload("Job", annotations)
    made["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    return made


def cron_job(annotations: dict[str, str]) -> Raw:
    nested = {"schedule": "0 0 * * *", "jobTemplate": {"spec": job(annotations)["spec"]}}
    return {**workload("CronJob", annotations), "spec": nested}


def plain_pod(annotations: dict[str, str]) -> Raw:
    return {"apiVersion": "v1", "kind": "Pod", **pod("any", {}, annotations)}


def node(annotations: dict[str, str]) -> Raw:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "any", "annotations": annotations}}


def ours(example: str) -> Any:
    """An example with these annotations instead of its own."""
    body = {key: value for key, value in EXAMPLES[example].items() if key != "status"}
    plain = merged(body, {"metadata": {"annotations": None, "namespace": None, "name": "any"}})
    return lambda annotations: merged(plain, {"metadata": {"annotations": annotations}})


OBJECTS: Final[dict[str, Any]] = {
    "a pod": plain_pod,
    "a Deployment": deployment,
    "a Job": job,
    "a CronJob": cron_job,
    "a node": node,
    "a pool": ours("gpupool-mps"),
    "a card": ours("gpudevice"),
    "a Reservation": ours("reservation"),
    "a PodAllocation": ours("podallocation"),
}

ADVICE: Final = {
    "gpu.mps.io/card": "; did you mean gpu.mps.io/cards?",
    "gpu.mps.io/Ratio": "; did you mean gpu.mps.io/ratio?",
    "gpu.mps.io/rtaio": "; did you mean gpu.mps.io/ratio?",
    "gpu.mps.io/containers": "; did you mean gpu.mps.io/container?",
    "gpu.deckhouse.io/ratio": "; did you mean gpu.mps.io/ratio?",
    "gpu.deckhouse.io/assignement": "; did you mean gpu.deckhouse.io/assignment?",
    "gpu.deckhouse.io/draining": "; did you mean gpu.deckhouse.io/drain?",
    "gpu-webhook.k8s.io/fallback_policy": "; did you mean gpu-webhook.k8s.io/fallback-policy?",
    "gpu-webhook.k8s.io/minmemory": "; did you mean gpu-webhook.k8s.io/min-memory?",
    "mbcas.io/maxcpu": "; did you mean mbcas.io/max-cpu?",
    "mbcas.io/calss": "; did you mean mbcas.io/class?",
    "mbcas.io/weigth": "; did you mean mbcas.io/weight?",
    "mbcas.io/managed": ": this is the name of a label",
    "gpu.deckhouse.io/ignore": ": this is the name of a label",
    "gpu.mps.io/percent": ": this is the name of a resource that containers request",
    "mbcas.io/zzz": "; docs/reference/annotations.md lists the known annotations",
}


class PolicyEnv:
    """The policy on a real API server, for one namespace and all cluster-scoped objects."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def warnings(self, body: Raw, *, namespace: str = "") -> str:
        """What kubectl prints next to the result of a dry run, which must succeed."""
        where = namespace or self.namespace
        created = self.cluster.kubectl(
            "create", "--dry-run=server", "-n", where, "-f", "-", stdin=json.dumps(body)
        )
        return str(created.stderr)

    def ran(self, *arguments: str) -> str:
        return str(self.cluster.kubectl(*arguments, "-n", self.namespace).stderr)


@pytest.fixture(scope="module")
def env(cluster: Cluster, crds: object) -> Iterator[PolicyEnv]:
    namespace = shared_cluster.create_namespace(cluster, "annotations")
    where = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace, "kube-system"]}
    made = PolicyEnv(cluster, namespace)
    try:
        for document in annotation_policy.documents({"matchExpressions": [where]}):
            document["metadata"]["name"] = NAME
            if "policyName" in document["spec"]:
                document["spec"]["policyName"] = NAME
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
        until_blocking(lambda: MEANT in made.warnings(plain_pod(TYPO)), "the policy to be enforced")
        yield made
    finally:
        kinds = "validatingadmissionpolicybinding,validatingadmissionpolicy"
        cluster.kubectl("delete", kinds, NAME, "--ignore-not-found")
        shared_cluster.delete_namespace(cluster, namespace)


@pytest.mark.parametrize("build", OBJECTS.values(), ids=OBJECTS)
def test_an_unknown_annotation_is_reported(build, env: PolicyEnv):
    assert MEANT in env.warnings(build(TYPO))


@pytest.mark.parametrize("build", OBJECTS.values(), ids=OBJECTS)
def test_known_and_foreign_annotations_are_not(build, env: PolicyEnv):
    assert "annotation" not in env.warnings(build(KNOWN))


def test_what_was_meant(env: PolicyEnv):
    said = env.warnings(plain_pod(dict.fromkeys(ADVICE, "1")))

    missing = [
        f"{key}{advice}"
        for key, advice in ADVICE.items()
        if f"annotation {key} is not known{advice}" not in said
    ]
    assert missing == [], said


def test_only_new_annotations_are_reported(env: PolicyEnv):
    kept = merged(plain_pod(TYPO), {"metadata": {"name": "kept"}})
    env.cluster.kubectl("create", "-n", env.namespace, "-f", "-", stdin=json.dumps(kept))

    assert env.ran("label", "pod", "kept", "example.com/seen=yes") == ""
    assert "did you mean gpu.mps.io/ratio?" in env.ran("annotate", "pod", "kept", "gpu.mps.io/ratios=50")


def test_the_namespaces_of_the_system_are_left_alone(env: PolicyEnv):
    assert env.warnings(plain_pod(TYPO), namespace="kube-system") == ""


def test_no_further_pod_reaches_the_webhook():
    """The CPU market's pods, and misspelt annotations of it, do not depend on the webhook."""
    options = configurations.WebhookConfigurationOptions(configurations.ServiceTarget("croupier"))

    assert "mbcas.io" not in json.dumps(configurations.documents(options))


def constants() -> Iterator[tuple[str, str]]:
    """The constants of the source tree that are keys with our prefixes, with the file of each."""
    for path in sorted((ROOT / "src/croupier").rglob("*.py")):
        for statement in ast.walk(ast.parse(path.read_text())):
            match statement:
                case ast.AnnAssign(value=ast.Constant(value=str(key))) if key.startswith(PREFIXES):
                    yield key, str(Path(path).relative_to(ROOT))


def test_every_key_in_the_code_is_documented():
    families = tuple(item.key.partition("<")[0] for item in LABELS if "<" in item.key)
    known = {item.key for item in (*ANNOTATIONS, *LABELS)} | set(RESOURCES) | set(families) | set(PREFIXES)
    found = dict(constants())

    assert len(found) > 30
    assert {key: path for key, path in found.items() if key not in known} == {}


def test_the_tables_have_no_key_twice():
    for table in (ANNOTATIONS, LABELS):
        keys = [(item.key, item.kind) for item in table]
        assert sorted(set(keys)) == sorted(keys)
    assert not known_annotations.other_uses().keys() & set(known_annotations.annotation_keys())


def test_all_kinds_that_people_write_are_checked():
    """The others are written by controllers only, and often."""
    rules = annotation_policy.documents()[0]["spec"]["matchConstraints"]["resourceRules"]
    checked = {(rule["apiGroups"][0], name) for rule in rules for name in rule["resources"]}
    written = {(kind.resource.group, kind.resource.plural) for kind in KINDS}

    assert {name for group, name in written - checked} == {"nodereservations", "gpunodeinventories"}
