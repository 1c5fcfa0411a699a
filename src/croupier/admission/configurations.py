"""How the API server is told about us: which pods, how long, and what when we do not answer. Pure.

Only pods come that name one of our resources or annotations: the API server checks that itself, so all
others never depend on us. `kube-system` and our own namespace are left out, because they must come up
without us, however a pod in them is written.

The failure policy is Ignore unless a person chooses Fail. Ignore passes a pod by when we are down; one
that asks for cards is then refused by a policy inside the API server, because it lacks the mark, with a
sentence that says what to do. Fail refuses the same pods with the words of a failed connection, and also
those that would have needed nothing from us (docs/decisions/0009-certificates-and-failure-policy.md).

Pods that ask for a pool are asked about a second time, and there the policy is always Fail: to be passed by
would be a right gained.
"""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from croupier.api.core_v1 import WebhookConfiguration
from croupier.core.pods.request import GPU, MIG, POOL

FailurePolicy: TypeAlias = Literal["Ignore", "Fail"]
FAILURE_POLICIES: Final = ("Ignore", "Fail")

NAME: Final = "croupier-webhook"
"""Of both configurations, and of the Service."""
FALLBACK: Final = "fallback.gpu-webhook.k8s.io"
REQUEST: Final = "request.gpu-webhook.k8s.io"
ACCESS: Final = "access.gpu-webhook.k8s.io"
ACCESS_REQUEST: Final = "access-request.gpu-webhook.k8s.io"
PATHS: Final = {
    ACCESS: "/access",
    FALLBACK: "/mutate",
    ACCESS_REQUEST: "/access/validate",
    REQUEST: "/validate",
}
"""Our webhooks, and where each is answered."""
EXCLUDED: Final = ("kube-system", "d8-gpu-operator")
TIMEOUT: Final = 5
"""Seconds the API server waits for us."""
INJECT: Final = "cert-manager.io/inject-ca-from"
OUR_RESOURCES: Final = "gpu.mps.io/"
OUR_ANNOTATIONS: Final = ("gpu.mps.io/", "gpu-webhook.k8s.io/")


@dataclass(frozen=True, slots=True)
class Service:
    """How the API server of a cluster reaches us."""

    namespace: str
    name: str = NAME
    port: int = 443

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names a certificate must carry."""
        return (f"{self.name}.{self.namespace}.svc", f"{self.name}.{self.namespace}.svc.cluster.local")


@dataclass(frozen=True, slots=True)
class Url:
    """Where an API server on the same machine reaches us: `https://127.0.0.1:9443`."""

    base: str
    host: str

    @property
    def hosts(self) -> tuple[str, ...]:
        return (self.host,)


@dataclass(frozen=True, slots=True)
class Wish:
    target: Service | Url
    failure_policy: FailurePolicy = "Ignore"
    excluded: tuple[str, ...] = EXCLUDED
    namespaces: Mapping[str, str] = field(default_factory=dict)
    """Only namespaces with these labels; all when there are none."""
    inject_from: str = ""
    """`namespace/name` of cert-manager's Certificate, if that one keeps the bundle."""
    name: str = NAME


def documents(wish: Wish, bundle: bytes = b"") -> list[dict[str, Any]]:
    """Both configurations; `bundle` is the PEM of the authorities to trust, empty if others fill it in."""
    return [mutating(wish, bundle), validating(wish, bundle)]


def mutating(wish: Wish, bundle: bytes = b"") -> dict[str, Any]:
    """Access first: who may not use a pool reads that, and what access adds, the others see.

    Fallback may be asked again when a later webhook changes the pod: what it does twice it did once. Access
    is asked once, because each time it would give the pod a new request id.
    """
    access = {**_guarded(wish, ACCESS, bundle), "reinvocationPolicy": "Never"}
    fallback = {**_webhook(wish, FALLBACK, bundle), "reinvocationPolicy": "IfNeeded"}
    return _configuration(
        wish,
        "MutatingWebhookConfiguration",
        [access | {"matchConditions": [_names_pools()]}, fallback | {"matchConditions": [_names_ours()]}],
    )


def validating(wish: Wish, bundle: bytes = b"") -> dict[str, Any]:
    """Besides pools, only annotations can be wrong in a way the API server does not see itself."""
    access, request = _guarded(wish, ACCESS_REQUEST, bundle), _webhook(wish, REQUEST, bundle)
    return _configuration(
        wish,
        "ValidatingWebhookConfiguration",
        [access | {"matchConditions": [_names_pools()]}, request | {"matchConditions": [_is_annotated()]}],
    )


def repair(found: WebhookConfiguration, bundle: bytes) -> dict[str, Any]:
    """The strategic merge that makes `bundle` the one our webhooks are trusted by; empty when it is.

    Nothing else is touched, and nothing at all if somebody changes the object meanwhile.
    """
    wanted = b64encode(bundle).decode()
    wrong = [
        {"name": one.name, "clientConfig": {"caBundle": wanted}}
        for one in found.webhooks
        if one.name in PATHS and one.client_config.ca_bundle != wanted
    ]
    guard = {"resourceVersion": found.metadata.resource_version}
    return {"metadata": guard, "webhooks": wrong} if wrong else {}


def _configuration(wish: Wish, kind: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": wish.name}
    if wish.inject_from:
        metadata["annotations"] = {INJECT: wish.inject_from}
    api_version = "admissionregistration.k8s.io/v1"
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "webhooks": webhooks}


def _guarded(wish: Wish, name: str, bundle: bytes) -> dict[str, Any]:
    return _webhook(wish, name, bundle) | {"failurePolicy": "Fail"}


def _webhook(wish: Wish, name: str, bundle: bytes) -> dict[str, Any]:
    return {
        "name": name,
        "clientConfig": _client(wish.target, PATHS[name])
        | ({"caBundle": b64encode(bundle).decode()} if bundle else {}),
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
        "namespaceSelector": _selector(wish),
        "matchPolicy": "Equivalent",
        "failurePolicy": wish.failure_policy,
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": TIMEOUT,
        "admissionReviewVersions": ["v1"],
    }


def _client(target: Service | Url, path: str) -> dict[str, Any]:
    if isinstance(target, Url):
        return {"url": target.base.rstrip("/") + path}
    return {
        "service": {"namespace": target.namespace, "name": target.name, "path": path, "port": target.port}
    }


def _selector(wish: Wish) -> dict[str, Any]:
    key = "kubernetes.io/metadata.name"
    selector: dict[str, Any] = {
        "matchExpressions": [{"key": key, "operator": "NotIn", "values": list(wish.excluded)}]
    }
    return selector | ({"matchLabels": dict(wish.namespaces)} if wish.namespaces else {})


def _names_ours() -> dict[str, str]:
    prefixes = " || ".join(f"name.startsWith('{one}')" for one in (MIG, POOL, OUR_RESOURCES))
    named = _names(f"name == '{GPU}' || {prefixes}")
    return {"name": "names-our-resources-or-annotations", "expression": f"{_ANNOTATED} || {named}"}


def _names_pools() -> dict[str, str]:
    return {"name": "names-a-pool", "expression": _names(f"name.startsWith('{POOL}')")}


def _names(ours: str) -> str:
    """Some container names a resource of which `ours` holds."""
    containers = "(object.spec.containers + object.spec.?initContainers.orValue([]))"
    lists = "[one.?resources.requests.orValue({}), one.?resources.limits.orValue({})]"
    return f"{containers}.exists(one, {lists}.exists(amounts, amounts.exists(name, {ours})))"


def _is_annotated() -> dict[str, str]:
    return {"name": "has-our-annotations", "expression": _ANNOTATED}


_ANNOTATED: Final = (
    "object.metadata.?annotations.orValue({}).exists(key, "
    + " || ".join(f"key.startsWith('{one}')" for one in OUR_ANNOTATIONS)
    + ")"
)
