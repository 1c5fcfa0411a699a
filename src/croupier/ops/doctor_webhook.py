"""Reads the webhook configurations, and checks with a dry-run pod that the API server reaches the webhook."""

import contextlib
from base64 import b64decode
from binascii import Error
from datetime import datetime
from typing import Final

from croupier.admission import certificates_shared, configurations, guard_policy, mark_policy
from croupier.admission.certificates import CERTIFICATE
from croupier.admission.policies import NAME_LABEL
from croupier.api import kinds
from croupier.core.installation.diagnosis_cluster import ProbeResult, RegisteredWebhook, WebhookFacts
from croupier.core.pods.request_parser import LEDGER, PERCENT
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import ApiError, KubeError, NotFound
from croupier.kube.client.resource import Raw, Resource
from croupier.kube.serving import certificates

MUTATING: Final = kinds.MUTATING_WEBHOOKS.kind
VALIDATING: Final = kinds.VALIDATING_WEBHOOKS.kind
WANTED: Final = {
    MUTATING: (configurations.ANNOTATION, configurations.ACCESS, configurations.FALLBACK),
    VALIDATING: (configurations.ACCESS_REQUEST, configurations.REQUEST, configurations.RESERVATION),
}
REGISTRATIONS: Final = {kind.kind: kind.raw for kind in (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS)}
NEEDED: Final = (mark_policy.NAME, guard_policy.GRANT_VARIABLES, "croupier-protect-allocation")
"""Policies without which a user could get cards without the ledger, or more than the ledger says."""


async def gather(api: Client, namespace: str) -> WebhookFacts:
    by_kind = {kind: await _find(api, REGISTRATIONS[kind]) for kind in WANTED}
    registered = {kind: webhook for kind, webhook in by_kind.items() if webhook is not None}
    bound = {
        binding["spec"]["policyName"] for binding in (await api.list(kinds.ADMISSION_POLICY_BINDINGS)).items
    }
    known = {policy_["metadata"]["name"] for policy_ in (await api.list(kinds.ADMISSION_POLICIES)).items}
    probe, message = await _probe(api, registered.get(MUTATING))
    return WebhookFacts(
        namespace,
        hooks={
            kind: [_hook(hook) for hook in webhook.get("webhooks", [])]
            for kind, webhook in registered.items()
        },
        wanted=WANTED,
        served_until=await _served_until(api, namespace),
        probe=probe,
        message=message,
        policies_missing=[name for name in NEEDED if name not in known & bound],
    )


async def _find(api: Client, kind: Resource[Raw]) -> Raw | None:
    try:
        return await api.get(kind, configurations.NAME)
    except NotFound:
        return None


def _hook(hook: Raw) -> RegisteredWebhook:
    return RegisteredWebhook(hook["name"], _last_expiry(hook.get("clientConfig", {}).get("caBundle", "")))


def _last_expiry(bundle: str) -> datetime | None:
    """The expiry of the authority that is valid longest."""
    try:
        return certificates.last_expiry(b64decode(bundle))
    except (ValueError, Error):
        return None


async def _served_until(api: Client, namespace: str) -> datetime | None:
    """The expiry of the webhook's certificate; None if its Secret does not exist or may not be read."""
    with contextlib.suppress(KubeError, ValueError, Error):
        secret = await api.get(kinds.SECRETS.raw, certificates_shared.NAME, namespace=namespace)
        return certificates.expiry(b64decode(secret.get("data", {}).get(CERTIFICATE, "")))
    return None


async def _probe(api: Client, registration: Raw | None) -> tuple[ProbeResult, str]:
    if registration is None:
        return "not tried", ""
    namespace = await _probe_namespace(api, registration)
    if not namespace:
        return "not tried", "its namespaceSelector matches no namespace"
    try:
        pod = await api.create(kinds.PODS.raw, probe_pod(namespace), dry_run=True)
    except ApiError as error:
        return _refusal(str(error))
    containers = pod["spec"]["containers"]
    marked = any(LEDGER in (container.get("resources", {}).get("requests") or {}) for container in containers)
    return ("answered", "") if marked else ("passed by", "")


def _refusal(message: str) -> tuple[ProbeResult, str]:
    """Classify the API server's message; other refusals do not concern the webhook."""
    if "failed calling webhook" in message or "failed to call webhook" in message:
        return "failed", message
    if mark_policy.NAME in message or f"the mark {LEDGER}" in message:
        return "passed by", message
    return "not tried", f"the API server refused the pod: {message}"


async def _probe_namespace(api: Client, registration: Raw) -> str:
    """A namespace that the webhook's namespaceSelector matches, preferably `default`."""
    selector = registration["webhooks"][0].get("namespaceSelector") or {}
    excluded = {
        name
        for expression in selector.get("matchExpressions") or []
        if expression["key"] == NAME_LABEL and expression["operator"] == "NotIn"
        for name in expression["values"]
    }
    labels = (selector.get("matchLabels") or {}).items()
    names = [
        namespace.metadata.name
        for namespace in (await api.list(kinds.NAMESPACES)).items
        if namespace.metadata.name not in excluded
        and labels <= namespace.metadata.labels.items()
        and namespace.status.phase != "Terminating"
    ]
    return "default" if "default" in names else next(iter(sorted(names)), "")


def probe_pod(namespace: str) -> Raw:
    """A pod that the webhook accepts with any settings: a whole card is never below the smallest share."""
    resources = {"limits": {PERCENT: "100"}}
    return {
        "metadata": {"generateName": "croupier-doctor-", "namespace": namespace},
        "spec": {"containers": [{"name": "probe", "image": "probe", "resources": resources}]},
    }
