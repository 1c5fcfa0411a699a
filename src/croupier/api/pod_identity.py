"""Minimal pod type: identity only.

It keeps the informer cache small in clusters with many pods.
"""

from msgspec import field

from croupier.api.wire import Wire
from croupier.core.fallbacks.fallback import ANNOTATION
from croupier.kube.client.resource import Resource


class PodIdentityAnnotations(Wire, frozen=True, kw_only=True):
    fallback: str = field(default="", name=ANNOTATION)


class PodIdentityMeta(Wire, frozen=True, kw_only=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: PodIdentityAnnotations = PodIdentityAnnotations()


class PodIdentity(Wire, frozen=True, kw_only=True):
    metadata: PodIdentityMeta = PodIdentityMeta()


POD_IDENTITIES = Resource("", "v1", "pods", "Pod", True, PodIdentity)
