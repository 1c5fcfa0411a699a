"""ValidatingAdmissionPolicies that protect managed fields and admitted requests from manual edits.

Controllers compute the status and the labels of cards, the status of pools and node inventories, the
ConfigMaps of pools and the pool labels of nodes. A manual edit would be used until the next reconcile, and
cards could go to the wrong pod. Users keep control of the annotations that assign, drain and confirm, of the
label that ignores a card, and of their own labels.

A pod's request was charged to quotas when the pod was created, so the annotations that are part of it cannot
be added or changed later. A stolen token of the account that starts service pods could start a pod with
another of our accounts or with access to the whole node, so these pods are restricted to their purpose. The
policies are generated here from the names in the code, and shipped under deployments/ and in the chart; a
test compares them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from croupier.admission.configurations import EXCLUDED
from croupier.api.gpu.device import IGNORE
from croupier.core.nodes.bootstrap import DCGM, ENVIRONMENT, FEATURES_DIR, GFD, SERVICE, ServiceKind
from croupier.core.pods.ledger_resource import CONTAINER_ANNOTATION
from croupier.core.pods.request_parser import CARDS, LEDGER, RATIO
from croupier.core.pools.hints import NODE_LABEL, POD_LABEL, REQUEST_ID

NAMESPACE: Final = "d8-gpu-operator"
ACCOUNTS: Final = (
    "croupier-manager",
    "croupier-extender",
    "croupier-ledger",
    "gpu-inventory-controller",
    "gpu-bootstrap-controller",
    "gpupool-controller",
)
"""Service accounts of our namespace that write managed fields."""
GARBAGE_COLLECTORS: Final = ("generic-garbage-collector", "namespace-controller")
"""Accounts of kube-system that delete objects whose owner or namespace was deleted."""

SERVICE_POD_STARTER: Final = "gpu-bootstrap-controller"
"""The account that may start GPU feature discovery and the DCGM exporter, if their images are set."""

KEEP_REQUEST: Final = "croupier-keep-request"
PROTECT_CARDS: Final = "croupier-protect-cards"
PROTECT_CONFIG: Final = "croupier-protect-pool-config"
PROTECT_NODES: Final = "croupier-protect-pool-nodes"
SERVICE_PODS: Final = "croupier-service-pods"

_GROUP: Final = "gpu.deckhouse.io"
_ALLOCATION: Final = "gpu.deckhouse.io/allocation"
_CONFIG: Final = "gpupool-"
_NAME_LABEL: Final = "kubernetes.io/metadata.name"

_CHANGED_REQUEST: Final = (
    "the annotation {changed} of a pod that requests cards cannot be set, changed or removed once the pod "
    "exists, because quotas were charged when the pod was created: create another pod"
)
_CHANGED_ADMISSION: Final = (
    "{changed} records the admission of the pod to its pool "
    "and cannot be set, changed or removed: leave it unchanged"
)
_MANAGED: Final = (
    "{changed} is managed by Croupier and cannot be edited by hand; to assign, drain and ignore cards and to "
    "confirm pools use annotations and labels (docs/pool-admission.md)"
)
_STARTED: Final = (
    f"{SERVICE_POD_STARTER} may only create and delete pods of GPU feature discovery and of the "
    "DCGM exporter, with the "
    "configured images: this one {changed}"
)


@dataclass(frozen=True, slots=True)
class _ProtectionPolicy:
    name: str
    rules: list[dict[str, Any]]
    variables: Mapping[str, str]
    checks: Mapping[str, str]
    """Messages by the CEL variable that lists the violations; the message names the first one."""
    namespaces: Mapping[str, Any] = field(default_factory=dict)
    conditions: Mapping[str, str] = field(default_factory=dict)
    failure: str = "Fail"
    vague: str = "what was edited"
    """Stands for the violation in the static message."""

    def documents(self, narrowed: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The policy and its binding; `narrowed` is a selector of namespaces."""
        where = {"matchResources": {"namespaceSelector": dict(narrowed)}} if narrowed else {}
        selector = {"namespaceSelector": dict(self.namespaces)} if self.namespaces else {}
        policy: dict[str, Any] = {
            "failurePolicy": self.failure,
            "matchConstraints": {"resourceRules": self.rules, **selector},
            **({"matchConditions": _expressions(self.conditions)} if self.conditions else {}),
            "variables": _expressions(self.variables),
            "validations": [
                _unchanged(variable, sentence, self.vague) for variable, sentence in self.checks.items()
            ],
        }
        binding = {"policyName": self.name, "validationActions": ["Deny"], **where}
        kinds = {"ValidatingAdmissionPolicy": policy, "ValidatingAdmissionPolicyBinding": binding}
        return [
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": {"name": self.name},
                "spec": spec,
            }
            for kind, spec in kinds.items()
        ]


def pod_documents(namespaces: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """A pod's request stays as admitted; `namespaces` is a label selector of namespaces, all by default."""
    differing = "[{}].filter(key, variables.new[?key] != variables.old[?key])"
    label = f"metadata.?labels[?'{POD_LABEL}']"
    return _ProtectionPolicy(
        KEEP_REQUEST,
        [_rule("", ["pods"], "UPDATE")],
        {
            "new": "object.metadata.?annotations.orValue({})",
            "old": "oldObject.metadata.?annotations.orValue({})",
            "marked": (
                "(object.spec.containers + object.spec.?initContainers.orValue([])).exists(one, "
                f"'{LEDGER}' in one.?resources.requests.orValue({{}}))"
            ),
            "asking": (
                f"variables.marked ? {differing.format(_quoted((CARDS, RATIO, CONTAINER_ANNOTATION)))} : []"
            ),
            "admission": (
                f"{differing.format(_quoted((REQUEST_ID,)))}.map(key, 'the annotation ' + key) + "
                f"(object.{label} == oldObject.{label} ? [] : ['the label {POD_LABEL}'])"
            ),
        },
        {"asking": _CHANGED_REQUEST, "admission": _CHANGED_ADMISSION},
        namespaces={
            "matchExpressions": [{"key": _NAME_LABEL, "operator": "NotIn", "values": list(EXCLUDED)}]
        },
    ).documents(namespaces)


def managed_documents(accounts: Iterable[str] = ACCOUNTS) -> list[dict[str, Any]]:
    """Cards, pools and inventories, the ConfigMaps of pools, and the labels of their nodes."""
    others = {"not-by-us": _not_by(f"system:serviceaccount:{NAMESPACE}:{account}" for account in accounts)}
    policies = (_cards(others), _config(others), _nodes(others))
    return [document for policy in policies for document in policy.documents()]


def service_documents(images: Mapping[ServiceKind, str]) -> list[dict[str, Any]]:
    """Restricts service pods: their image, their account, and their access to the node.

    They may be privileged, as the driver requires for GPU feature discovery, so everything is refused that
    would let a pod run anything but its image.
    """
    offences = " + ".join(f"({holds} ? [] : ['{sentence}'])" for sentence, holds in _service_pod().items())
    ended = f"'{SERVICE}' in oldObject.metadata.?labels.orValue({{}}) ? [] : ['is none of them']"
    return _ProtectionPolicy(
        SERVICE_PODS,
        [_rule("", ["pods"], "CREATE", "UPDATE", "DELETE")],
        {
            "images": f"{{'{GFD}': '{images.get(GFD, '')}', '{DCGM}': '{images.get(DCGM, '')}'}}",
            "service": f"object == null ? '' : object.metadata.?labels[?'{SERVICE}'].orValue('')",
            "main": "object == null ? [] : object.spec.containers",
            "volumes": "object == null ? [] : object.spec.?volumes.orValue([])",
            "offences": (
                f"request.operation == 'DELETE' ? ({ended}) : "
                f"request.operation == 'UPDATE' ? ['is changed after it was started'] : {offences}"
            ),
        },
        {"offences": _STARTED},
        vague="differs",
        conditions={
            "who-starts-them": (
                f"request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{SERVICE_POD_STARTER}'"
            )
        },
    ).documents()


def _service_pod() -> dict[str, str]:
    """The CEL rules of a service pod, by the message about a violation."""
    main = "variables.main.all(one, {})".format
    return {
        "has a label that others go by": (
            "object.metadata.?labels.orValue({}).all(key, "
            f"key in ['{SERVICE}', 'app.kubernetes.io/name'] || "
            "key.startsWith('topology.kubernetes.io/'))"  # which the API server adds
        ),
        "runs another image": (
            "size(variables.main) == 1 && size(object.spec.?initContainers.orValue([])) == 0 && "
            "variables.images[?variables.service].orValue('') != '' && "
            "variables.main[0].image == variables.images[variables.service]"
        ),
        "runs a command of its own": main(
            "size(one.?command.orValue([])) == 0 && size(one.?args.orValue([])) == 0 && "
            "!has(one.lifecycle) && !has(one.livenessProbe) && !has(one.startupProbe) && "
            "!one.?readinessProbe.exec.hasValue()"
        ),
        "has an environment of its own": main(
            f"size(one.?envFrom.orValue([])) == 0 && "
            f"one.?env.orValue([]).all(each, each.name in [{_quoted(ENVIRONMENT)}] && !has(each.valueFrom))"
        ),
        "works for an account": (
            "object.spec.?serviceAccountName.orValue('default') == 'default' && "
            "object.spec.?automountServiceAccountToken.orValue(true) == false"
        ),
        "sees more of its node": (
            f"variables.volumes.all(one, variables.service == '{GFD}' && has(one.hostPath) && "
            f"one.hostPath.path == '{FEATURES_DIR}') && !object.spec.?hostNetwork.orValue(false) && "
            "!object.spec.?hostPID.orValue(false) && !object.spec.?hostIPC.orValue(false)"
        ),
        "may do more there": main(
            f"(variables.service == '{GFD}' || !one.?securityContext.privileged.orValue(false)) && "
            "one.?securityContext.capabilities.add.orValue([]).all(each, "
            f"variables.service == '{DCGM}' && each == 'SYS_ADMIN')"
        ),
    }


def changed_request(annotation: str) -> str:
    return _CHANGED_REQUEST.format(changed=annotation)


def changed_admission(what: str) -> str:
    return _CHANGED_ADMISSION.format(changed=what)


def managed_field(what: str) -> str:
    return _MANAGED.format(changed=what)


def _cards(others: Mapping[str, str]) -> _ProtectionPolicy:
    """Creation is refused too: a card created by hand could be allocated to a pod."""
    statuses = [f"{kind}/status" for kind in ("gpudevices", "gpunodeinventories", "gpupools")]
    kind = "request.kind.kind + ' ' + object.metadata.name"
    annotation = f"metadata.?annotations[?'{_ALLOCATION}']"
    return _ProtectionPolicy(
        PROTECT_CARDS,
        [
            _rule(_GROUP, ["gpudevices", "gpunodeinventories"], "CREATE"),
            _rule(_GROUP, ["gpudevices", *statuses], "UPDATE"),
        ],
        {
            **_LABELS,
            "labels": _changed_labels(f"key.startsWith('{_GROUP}/') && key != '{IGNORE}'"),
            "edited": (
                "variables.labels.map(key, 'the label ' + key) + "
                f"(object.{annotation} == oldObject.{annotation} ? [] : ['the annotation {_ALLOCATION}'])"
            ),
            "fields": (
                f"request.?subResource.orValue('') == 'status' ? ['the status of ' + {kind}] : "
                f"request.operation == 'CREATE' ? [{kind}] : variables.edited"
            ),
        },
        {"fields": _MANAGED},
        conditions=others,
    )


def _config(others: Mapping[str, str]) -> _ProtectionPolicy:
    removers = _not_by(f"system:serviceaccount:kube-system:{account}" for account in GARBAGE_COLLECTORS)
    return _ProtectionPolicy(
        PROTECT_CONFIG,
        [_rule("", ["configmaps"], "CREATE", "UPDATE", "DELETE")],
        {
            "name": "object == null ? oldObject.metadata.name : object.metadata.?name.orValue('')",
            "fields": f"variables.name.startsWith('{_CONFIG}') ? ['ConfigMap ' + variables.name] : []",
        },
        {"fields": _MANAGED},
        namespaces={"matchLabels": {_NAME_LABEL: NAMESPACE}},
        conditions={**others, "no-housekeeping": f"request.operation != 'DELETE' || {removers}"},
    )


def _nodes(others: Mapping[str, str]) -> _ProtectionPolicy:
    """The failure policy is Ignore: an error in this policy must not block node updates."""
    moved = _changed_labels(f"key.startsWith('{NODE_LABEL}')")
    return _ProtectionPolicy(
        PROTECT_NODES,
        [_rule("", ["nodes", "nodes/status"], "CREATE", "UPDATE")],
        {**_LABELS, "fields": f"({moved}).map(key, 'the label ' + key)"},
        {"fields": _MANAGED},
        conditions=others,
        failure="Ignore",
    )


_LABELS: Final = {
    "new": "object.metadata.?labels.orValue({})",
    "old": "oldObject == null ? {} : oldObject.metadata.?labels.orValue({})",
}


def _changed_labels(concerned: str) -> str:
    """Labels that were added, changed or removed and for which `concerned` is true."""
    return (
        f"variables.new.filter(key, {concerned} && variables.old[?key] != variables.new[?key]) + "
        f"variables.old.filter(key, {concerned} && !(key in variables.new))"
    )


def _rule(group: str, resources: list[str], *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": resources,
    }


def _not_by(users: Iterable[str]) -> str:
    return f"!(request.userInfo.username in [{_quoted(users)}])"


def _quoted(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)


def _expressions(named: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "expression": text} for name, text in named.items()]


def _unchanged(variable: str, sentence: str, vague: str) -> dict[str, Any]:
    before, after = sentence.split("{changed}")
    head = f"'{before}' + " if before else ""
    return {
        "expression": f"size(variables.{variable}) == 0",
        "message": sentence.format(changed=vague),
        "messageExpression": f"{head}variables.{variable}[0] + '{after}'",
        "reason": "Forbidden",
    }
