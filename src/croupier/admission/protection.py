"""ValidatingAdmissionPolicies that protect managed fields and admitted requests from manual edits.

Controllers compute the status and the labels of cards, the status of pools and node inventories, the
ConfigMaps of pools and the pool labels of nodes. A manual edit would be used until the next reconcile, and
cards could go to the wrong pod. Users keep control of the annotations that assign, drain and confirm, of the
label that ignores a card, and of their own labels.

A pod's request was charged to quotas when the pod was created, so the annotations that are part of it cannot
be added or changed later. A stolen token of the account that starts service pods could start a pod with
another of our accounts or with access to the whole node, so these pods are restricted to their purpose. The
policies are generated here from the names in the code, and written to deployments/ and to the chart by
`make generate`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from croupier.admission import policies
from croupier.admission.policies import AdmissionPolicy
from croupier.api.gpu import pool_config
from croupier.api.gpu.convert_pool import CARD_ALLOCATION
from croupier.api.gpu.device import IGNORE
from croupier.api.mps.reservation import MIRROR
from croupier.core.cards import lifecycle
from croupier.core.fallbacks import fallback
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.core.nodes.bootstrap import COMMANDS, DCGM, ENVIRONMENT, FEATURES_DIR, GFD, SERVICE, ServiceKind
from croupier.core.pods.ledger_resource import CONTAINER_ANNOTATION
from croupier.core.pods.request_parser import CARDS, LEDGER, RATIO
from croupier.core.pools.hints import NODE_LABEL, POD_LABEL, REQUEST_ID

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

SERVICE_POD_STARTER: Final = lifecycle.BOOTSTRAP
"""The account that may start GPU feature discovery and the DCGM exporter, if their images are set."""

KEEP_REQUEST: Final = "croupier-keep-request"
PROTECT_CARDS: Final = "croupier-protect-cards"
PROTECT_CONFIG: Final = "croupier-protect-pool-config"
PROTECT_MIRRORS: Final = "croupier-protect-mirrors"
PROTECT_NODES: Final = "croupier-protect-pool-nodes"
SERVICE_PODS: Final = "croupier-service-pods"

_GROUP: Final = "gpu.deckhouse.io"

_REQUEST: Final = (CARDS, RATIO, CONTAINER_ANNOTATION)
"""The annotations that are part of a pod's request."""
_ADMISSION: Final = (REQUEST_ID, fallback.ANNOTATION)
"""The annotations that the webhook writes."""
_CHANGED_REQUEST: Final = (
    "the annotation {item} of a pod that requests cards cannot be set, changed or removed once the pod "
    "exists, because quotas were charged when the pod was created: create another pod"
)
_CHANGED_ADMISSION: Final = (
    "{item} records the admission of the pod and cannot be set, changed or removed: leave it unchanged"
)
_MANAGED: Final = (
    "{item} is managed by Croupier and cannot be edited by hand; to assign, drain and ignore cards and to "
    "confirm pools use annotations and labels (docs/pool-admission.md)"
)
_STARTED: Final = (
    f"{SERVICE_POD_STARTER} may only create and delete pods of GPU feature discovery and of the "
    "DCGM exporter, with the "
    "configured images: this one {item}"
)


def pod_documents(namespaces: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """A pod's request stays as admitted; `namespaces` is a label selector of namespaces, all by default."""
    differing = "[{}].filter(key, variables.new[?key] != variables.old[?key])"
    label = f"metadata.?labels[?'{POD_LABEL}']"
    return AdmissionPolicy(
        KEEP_REQUEST,
        [policies.rule("", ["pods"], "UPDATE")],
        {
            "new": "object.metadata.?annotations.orValue({})",
            "old": "oldObject.metadata.?annotations.orValue({})",
            "marked": (
                "(object.spec.containers + object.spec.?initContainers.orValue([])).exists(one, "
                f"'{LEDGER}' in one.?resources.requests.orValue({{}}))"
            ),
            "asking": f"variables.marked ? {differing.format(policies.quoted(_REQUEST))} : []",
            "admission": (
                f"{differing.format(policies.quoted(_ADMISSION))}.map(key, 'the annotation ' + key) + "
                f"(object.{label} == oldObject.{label} ? [] : ['the label {POD_LABEL}'])"
            ),
        },
        [_none("asking", _CHANGED_REQUEST), _none("admission", _CHANGED_ADMISSION)],
        namespaces=policies.USER_NAMESPACES,
    ).documents(namespaces)


def managed_documents(accounts: Iterable[str] = ACCOUNTS) -> list[dict[str, Any]]:
    """Cards, pools and inventories, the ConfigMaps of pools, the labels of their nodes, and mirrors."""
    others = {"not-by-us": _not_by(map(_service_account, accounts))}
    protected = (_cards(others), _config(others), _nodes(others), _mirrors(others))
    return [document for policy in protected for document in policy.documents()]


def service_documents(images: Mapping[ServiceKind, str]) -> list[dict[str, Any]]:
    """Restricts service pods: their image, their account, and their access to the node.

    They may be privileged, as the driver requires for GPU feature discovery, so everything is refused that
    would let a pod run anything but its image.
    """
    offences = " + ".join(f"({holds} ? [] : ['{sentence}'])" for sentence, holds in _service_pod().items())
    ended = f"'{SERVICE}' in oldObject.metadata.?labels.orValue({{}}) ? [] : ['is none of them']"
    return AdmissionPolicy(
        SERVICE_PODS,
        [policies.rule("", ["pods"], "CREATE", "UPDATE", "DELETE")],
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
        [_none("offences", _STARTED, "differs")],
        conditions={
            "who-starts-them": f"request.userInfo.username == '{_service_account(SERVICE_POD_STARTER)}'"
        },
    ).documents()


def _usual_command() -> str:
    """The service's own command, or none."""
    cases = "".join(
        f"variables.service == '{kind}' ? one.?command.orValue([]) == [{policies.quoted(command)}] : "
        for kind, command in COMMANDS.items()
    )
    return f"({cases}size(one.?command.orValue([])) == 0)"


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
            f"{_usual_command()} && size(one.?args.orValue([])) == 0 && "
            "!has(one.lifecycle) && !has(one.livenessProbe) && !has(one.startupProbe) && "
            "!one.?readinessProbe.exec.hasValue()"
        ),
        "has an environment of its own": main(
            f"size(one.?envFrom.orValue([])) == 0 && "
            f"one.?env.orValue([]).all(each, each.name in [{policies.quoted(ENVIRONMENT)}] && "
            "!has(each.valueFrom))"
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
    return _CHANGED_REQUEST.format(item=annotation)


def changed_admission(what: str) -> str:
    return _CHANGED_ADMISSION.format(item=what)


def managed_field(what: str) -> str:
    return _MANAGED.format(item=what)


def _cards(others: Mapping[str, str]) -> AdmissionPolicy:
    """Creation is refused too: a card created by hand could be allocated to a pod."""
    statuses = [f"{kind}/status" for kind in ("gpudevices", "gpunodeinventories", "gpupools")]
    kind = "request.kind.kind + ' ' + object.metadata.name"
    annotation = f"metadata.?annotations[?'{CARD_ALLOCATION}']"
    return AdmissionPolicy(
        PROTECT_CARDS,
        [
            policies.rule(_GROUP, ["gpudevices", "gpunodeinventories"], "CREATE"),
            policies.rule(_GROUP, ["gpudevices", *statuses], "UPDATE"),
        ],
        {
            **_LABELS,
            "labels": _changed_labels(f"key.startsWith('{_GROUP}/') && key != '{IGNORE}'"),
            "edited": (
                "variables.labels.map(key, 'the label ' + key) + "
                f"(object.{annotation} == oldObject.{annotation} ? [] : ['the annotation {CARD_ALLOCATION}'])"
            ),
            "fields": (
                f"request.?subResource.orValue('') == 'status' ? ['the status of ' + {kind}] : "
                f"request.operation == 'CREATE' ? [{kind}] : variables.edited"
            ),
        },
        [_none("fields", _MANAGED)],
        conditions=others,
    )


def _config(others: Mapping[str, str]) -> AdmissionPolicy:
    removers = _not_by(f"system:serviceaccount:kube-system:{account}" for account in GARBAGE_COLLECTORS)
    return AdmissionPolicy(
        PROTECT_CONFIG,
        [policies.rule("", ["configmaps"], "CREATE", "UPDATE", "DELETE")],
        {
            "name": "object == null ? oldObject.metadata.name : object.metadata.?name.orValue('')",
            "fields": f"variables.name.startsWith('{pool_config.NAME_PREFIX}')"
            " ? ['ConfigMap ' + variables.name] : []",
        },
        [_none("fields", _MANAGED)],
        namespaces={"matchLabels": {policies.NAME_LABEL: DEFAULT_NAMESPACE}},
        conditions={**others, "no-housekeeping": f"request.operation != 'DELETE' || {removers}"},
    )


def _nodes(others: Mapping[str, str]) -> AdmissionPolicy:
    """The failure policy is Ignore: an error in this policy must not block node updates."""
    moved = _changed_labels(f"key.startsWith('{NODE_LABEL}')")
    return AdmissionPolicy(
        PROTECT_NODES,
        [policies.rule("", ["nodes", "nodes/status"], "CREATE", "UPDATE")],
        {**_LABELS, "fields": f"({moved}).map(key, 'the label ' + key)"},
        [_none("fields", _MANAGED)],
        conditions=others,
        failure="Ignore",
    )


def _mirrors(others: Mapping[str, str]) -> AdmissionPolicy:
    """Only Croupier marks Reservations that show what a pod holds."""
    marked = _changed_labels(f"key == '{MIRROR}'")
    return AdmissionPolicy(
        PROTECT_MIRRORS,
        [policies.rule("mps.nvidia.com", ["reservations"], "CREATE", "UPDATE")],
        {**_LABELS, "fields": f"({marked}).map(key, 'the label ' + key)"},
        [_none("fields", _MANAGED)],
        conditions=others,
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


def _service_account(name: str) -> str:
    return f"system:serviceaccount:{DEFAULT_NAMESPACE}:{name}"


def _not_by(users: Iterable[str]) -> str:
    return f"!(request.userInfo.username in [{policies.quoted(users)}])"


def _none(variable: str, message: str, otherwise: str = "what was edited") -> dict[str, Any]:
    """The CEL variable lists the violations; the message names the first one."""
    return policies.validation(f"size(variables.{variable}) == 0", message, variable, otherwise)
