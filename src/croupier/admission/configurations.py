"""The webhook configurations: which pods, which timeout, which failure policy. Pure.

The API server calls the webhook only for pods that name one of our resources or annotations, so all other
pods never depend on it. `kube-system` and our own namespace are excluded, because their pods must start
without the webhook.

The default failure policy is Ignore. With Ignore, a pod is admitted unchanged while the webhook is down; a
pod that requests cards is then refused by a policy inside the API server, because it lacks the mark, with a
message that says what to do. With Fail, the same pods are refused with a connection error, and also pods
that need no change (docs/decisions/0009-certificates-and-failure-policy.md).

Pods that request a pool are sent to a second webhook whose failure policy is always Fail: otherwise an outage
would grant access. So is a pod that brings the annotation of a fallback, which only the webhook writes.
"""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from croupier.api.core_v1 import WebhookConfiguration
from croupier.core.fallbacks import fallback
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.core.pods.request_parser import GPU, MIG, POOL

FailurePolicy: TypeAlias = Literal["Ignore", "Fail"]
FAILURE_POLICIES: Final = ("Ignore", "Fail")

NAME: Final = "croupier-webhook"
"""Name of both configurations and of the Service."""
FALLBACK: Final = "fallback.gpu-webhook.k8s.io"
REQUEST: Final = "request.gpu-webhook.k8s.io"
ANNOTATION: Final = "annotation.gpu-webhook.k8s.io"
ACCESS: Final = "access.gpu-webhook.k8s.io"
ACCESS_REQUEST: Final = "access-request.gpu-webhook.k8s.io"
RESERVATION: Final = "reservation.gpu-webhook.k8s.io"
PATHS: Final = {
    ANNOTATION: "/annotation",
    ACCESS: "/access",
    FALLBACK: "/mutate",
    ACCESS_REQUEST: "/access/validate",
    REQUEST: "/validate",
    RESERVATION: "/reservation",
}
"""Paths of the webhooks, by name."""
EXCLUDED: Final = ("kube-system", DEFAULT_NAMESPACE)
TIMEOUT: Final = 5
"""Seconds that the API server waits for an answer."""
INJECT_CA: Final = "cert-manager.io/inject-ca-from"
OUR_RESOURCES: Final = "gpu.mps.io/"
OUR_ANNOTATIONS: Final = ("gpu.mps.io/", "gpu-webhook.k8s.io/")


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    """The Service through which the API server calls the webhook."""

    namespace: str
    name: str = NAME
    port: int = 443

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names that the certificate must have."""
        return (f"{self.name}.{self.namespace}.svc", f"{self.name}.{self.namespace}.svc.cluster.local")


@dataclass(frozen=True, slots=True)
class UrlTarget:
    """The URL for an API server on the same machine: `https://127.0.0.1:9443`."""

    base: str
    host: str

    @property
    def hosts(self) -> tuple[str, ...]:
        return (self.host,)


@dataclass(frozen=True, slots=True)
class WebhookConfigurationOptions:
    target: ServiceTarget | UrlTarget
    failure_policy: FailurePolicy = "Ignore"
    excluded: tuple[str, ...] = EXCLUDED
    namespaces: Mapping[str, str] = field(default_factory=dict)
    """Only namespaces with these labels; all if it is empty."""
    inject_from: str = ""
    """`namespace/name` of the Certificate from which cert-manager injects the bundle, if it does."""
    name: str = NAME


def documents(options: WebhookConfigurationOptions, bundle: bytes = b"") -> list[dict[str, Any]]:
    """Both configurations; `bundle` is the PEM of the trusted CAs, empty if it is injected."""
    return [mutating(options, bundle), validating(options, bundle)]


def mutating(options: WebhookConfigurationOptions, bundle: bytes = b"") -> dict[str, Any]:
    """Access comes before fallback: a refused user sees that reason, and later webhooks see its changes.

    Fallback is idempotent and may be called again when a later webhook changes the pod. Access is called
    once, because each call would set a new request id. The annotation of a fallback is removed once, before
    the webhook writes its own.
    """
    annotation = {**_required_webhook(options, ANNOTATION, bundle), "reinvocationPolicy": "Never"}
    access = {**_required_webhook(options, ACCESS, bundle), "reinvocationPolicy": "Never"}
    rewriting = {**_webhook(options, FALLBACK, bundle), "reinvocationPolicy": "IfNeeded"}
    return _configuration(
        options,
        "MutatingWebhookConfiguration",
        [
            annotation | {"matchConditions": [_brings_annotation()]},
            access | {"matchConditions": [_names_pools()]},
            rewriting | {"matchConditions": [_names_ours()]},
        ],
    )


def validating(options: WebhookConfigurationOptions, bundle: bytes = b"") -> dict[str, Any]:
    """Pool access, annotations, which the API server does not validate itself, and Reservations.

    The controller checks Reservations again, so they never depend on the webhook.
    """
    access, request = _required_webhook(options, ACCESS_REQUEST, bundle), _webhook(options, REQUEST, bundle)
    return _configuration(
        options,
        "ValidatingWebhookConfiguration",
        [
            access | {"matchConditions": [_names_pools()]},
            request | {"matchConditions": [_is_annotated()]},
            _webhook(options, RESERVATION, bundle) | {"rules": [_RESERVATIONS], "failurePolicy": "Ignore"},
        ],
    )


def repair(configuration: WebhookConfiguration, bundle: bytes) -> dict[str, Any]:
    """A strategic merge patch that sets `bundle` for our webhooks; empty if it is set already.

    The patch changes nothing else and is guarded by the resourceVersion.
    """
    wanted = b64encode(bundle).decode()
    wrong = [
        {"name": webhook.name, "clientConfig": {"caBundle": wanted}}
        for webhook in configuration.webhooks
        if webhook.name in PATHS and webhook.client_config.ca_bundle != wanted
    ]
    guard = {"resourceVersion": configuration.metadata.resource_version}
    return {"metadata": guard, "webhooks": wrong} if wrong else {}


def _configuration(
    options: WebhookConfigurationOptions, kind: str, webhooks: list[dict[str, Any]]
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": options.name}
    if options.inject_from:
        metadata["annotations"] = {INJECT_CA: options.inject_from}
    api_version = "admissionregistration.k8s.io/v1"
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "webhooks": webhooks}


def _required_webhook(options: WebhookConfigurationOptions, name: str, bundle: bytes) -> dict[str, Any]:
    return _webhook(options, name, bundle) | {"failurePolicy": "Fail"}


def _webhook(options: WebhookConfigurationOptions, name: str, bundle: bytes) -> dict[str, Any]:
    return {
        "name": name,
        "clientConfig": _client(options.target, PATHS[name])
        | ({"caBundle": b64encode(bundle).decode()} if bundle else {}),
        "rules": [_rule("", "pods", "CREATE")],
        "namespaceSelector": _selector(options),
        "matchPolicy": "Equivalent",
        "failurePolicy": options.failure_policy,
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": TIMEOUT,
        "admissionReviewVersions": ["v1"],
    }


def _rule(group: str, resource: str, *operations: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": list(operations),
        "resources": [resource],
        "scope": "Namespaced",
    }


_RESERVATIONS: Final = _rule("mps.nvidia.com", "reservations", "CREATE", "UPDATE")


def _client(target: ServiceTarget | UrlTarget, path: str) -> dict[str, Any]:
    if isinstance(target, UrlTarget):
        return {"url": target.base.rstrip("/") + path}
    return {
        "service": {"namespace": target.namespace, "name": target.name, "path": path, "port": target.port}
    }


def _selector(options: WebhookConfigurationOptions) -> dict[str, Any]:
    key = "kubernetes.io/metadata.name"
    selector: dict[str, Any] = {
        "matchExpressions": [{"key": key, "operator": "NotIn", "values": list(options.excluded)}]
    }
    return selector | ({"matchLabels": dict(options.namespaces)} if options.namespaces else {})


def _names_ours() -> dict[str, str]:
    prefixes = " || ".join(f"name.startsWith('{prefix}')" for prefix in (MIG, POOL, OUR_RESOURCES))
    named = _names(f"name == '{GPU}' || {prefixes}")
    return {"name": "names-our-resources-or-annotations", "expression": f"{_ANNOTATED} || {named}"}


def _names_pools() -> dict[str, str]:
    return {"name": "names-a-pool", "expression": _names(f"name.startsWith('{POOL}')")}


def _names(ours: str) -> str:
    """At least one container names a resource for which `ours` is true."""
    containers = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
    lists = "[one.?resources.requests.orValue({}), one.?resources.limits.orValue({})]"
    return f"{containers}.exists(one, {lists}.exists(amounts, amounts.exists(name, {ours})))"


def _brings_annotation() -> dict[str, str]:
    key = f"'{fallback.ANNOTATION}' in object.metadata.?annotations.orValue({{}})"
    return {"name": "brings-the-annotation-of-a-fallback", "expression": key}


def _is_annotated() -> dict[str, str]:
    return {"name": "has-our-annotations", "expression": _ANNOTATED}


_ANNOTATED: Final = (
    "object.metadata.?annotations.orValue({}).exists(key, "
    + " || ".join(f"key.startsWith('{prefix}')" for prefix in OUR_ANNOTATIONS)
    + ")"
)
