"""Minimal pod type: identity only.

It keeps the informer cache small in clusters with many pods.
"""

from msgspec import field

from croupier.api.wire import Wire
from croupier.kube.resource import Resource

FALLBACK = "gpu-webhook.k8s.io/fallback"


class Annotations(Wire, frozen=True, kw_only=True):
    fallback: str = field(default="", name=FALLBACK)


class Metadata(Wire, frozen=True, kw_only=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: Annotations = Annotations()


class Sighting(Wire, frozen=True, kw_only=True):
    metadata: Metadata = Metadata()


SIGHTINGS = Resource("", "v1", "pods", "Pod", True, Sighting)
