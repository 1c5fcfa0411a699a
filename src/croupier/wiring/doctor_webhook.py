"""How the API server knows our webhook, and whether it reaches it: it is offered a pod that is never made."""

import contextlib
from base64 import b64decode
from binascii import Error
from datetime import datetime
from typing import Final

from cryptography import x509

from croupier.admission import certificates, certificates_shared, configurations, policy
from croupier.api import kinds
from croupier.core.installation.diagnosis_cluster import Hook, Probe, Webhooks
from croupier.core.pods.request import MARK, PERCENT
from croupier.kube.client import Client
from croupier.kube.errors import ApiError, KubeError, NotFound
from croupier.kube.resource import Raw, Resource

GROUP: Final = "admissionregistration.k8s.io"
MUTATING: Final = "MutatingWebhookConfiguration"
VALIDATING: Final = "ValidatingWebhookConfiguration"
WANTED: Final = {
    MUTATING: (configurations.ACCESS, configurations.FALLBACK),
    VALIDATING: (configurations.ACCESS_REQUEST, configurations.REQUEST),
}
_PLURALS: Final = {MUTATING: "mutatingwebhookconfigurations", VALIDATING: "validatingwebhookconfigurations"}
REGISTRATIONS: Final[dict[str, Resource[Raw]]] = {
    kind: Resource(GROUP, "v1", plural, kind, False, dict) for kind, plural in _PLURALS.items()
}
POLICIES: Final[Resource[Raw]] = Resource(
    GROUP, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False, dict
)
BINDINGS: Final[Resource[Raw]] = Resource(
    GROUP, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False, dict
)
NEEDED: Final = (policy.NAME, "croupier-protect-allocation")
"""Policies without which somebody could get cards past the ledger."""
NAME_LABEL: Final = "kubernetes.io/metadata.name"


async def gather(api: Client, namespace: str) -> Webhooks:
    found = {kind: await _find(api, REGISTRATIONS[kind]) for kind in WANTED}
    there = {kind: one for kind, one in found.items() if one is not None}
    bound = {one["spec"]["policyName"] for one in (await api.list(BINDINGS)).items}
    known = {one["metadata"]["name"] for one in (await api.list(POLICIES)).items}
    probe, told = await _probe(api, there.get(MUTATING))
    return Webhooks(
        hooks={kind: [_hook(one) for one in found.get("webhooks", [])] for kind, found in there.items()},
        wanted=WANTED,
        served_until=await _served_until(api, namespace),
        probe=probe,
        told=told,
        policies_missing=[one for one in NEEDED if one not in known & bound],
    )


async def _find(api: Client, kind: Resource[Raw]) -> Raw | None:
    try:
        return await api.get(kind, configurations.NAME)
    except NotFound:
        return None


def _hook(found: Raw) -> Hook:
    return Hook(found["name"], _last_end(found.get("clientConfig", {}).get("caBundle", "")))


def _last_end(bundle: str) -> datetime | None:
    """When the last of these authorities ends."""
    try:
        authorities = x509.load_pem_x509_certificates(b64decode(bundle))
    except (ValueError, Error):
        return None
    return max((one.not_valid_after_utc for one in authorities), default=None)


async def _served_until(api: Client, namespace: str) -> datetime | None:
    """None where the certificate is kept elsewhere, or not for our eyes."""
    with contextlib.suppress(KubeError, ValueError, Error):
        secret = await api.get(kinds.SECRETS.raw, certificates_shared.NAME, namespace=namespace)
        return certificates.expiry(b64decode(secret.get("data", {}).get(certificates.CERTIFICATE, "")))
    return None


async def _probe(api: Client, registration: Raw | None) -> tuple[Probe, str]:
    if registration is None:
        return "not tried", ""
    namespace = await _somewhere(api, registration)
    if not namespace:
        return "not tried", "no namespace is one that it is asked about"
    try:
        made = await api.create(kinds.PODS.raw, _pod(namespace), dry_run=True)
    except ApiError as error:
        return _refusal(str(error))
    containers = made["spec"]["containers"]
    marked = any(MARK in (one.get("resources", {}).get("requests") or {}) for one in containers)
    return ("answered", "") if marked else ("passed by", "")


def _refusal(told: str) -> tuple[Probe, str]:
    """The API server's own words; a refusal for another reason says nothing about the webhook."""
    if "failed calling webhook" in told or "failed to call webhook" in told:
        return "failed", told
    if policy.NAME in told or f"the mark {MARK}" in told:
        return "passed by", told
    return "not tried", f"the API server refused the pod: {told}"


async def _somewhere(api: Client, registration: Raw) -> str:
    """A namespace whose pods are brought before the webhook; best the one called default."""
    selector = registration["webhooks"][0].get("namespaceSelector") or {}
    barred = {
        name
        for one in selector.get("matchExpressions") or []
        if one["key"] == NAME_LABEL and one["operator"] == "NotIn"
        for name in one["values"]
    }
    wanted = (selector.get("matchLabels") or {}).items()
    names = [
        one.metadata.name
        for one in (await api.list(kinds.NAMESPACES)).items
        if one.metadata.name not in barred
        and wanted <= one.metadata.labels.items()
        and one.status.phase != "Terminating"
    ]
    return "default" if "default" in names else next(iter(sorted(names)), "")


def _pod(namespace: str) -> Raw:
    resources = {"limits": {PERCENT: "1"}}
    return {
        "metadata": {"generateName": "croupier-doctor-", "namespace": namespace},
        "spec": {"containers": [{"name": "probe", "image": "probe", "resources": resources}]},
    }
