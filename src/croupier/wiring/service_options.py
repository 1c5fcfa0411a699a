"""Which services the bootstrap controller starts on nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from croupier.core.nodes.bootstrap import ServiceKind


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Services to start on nodes without them; a service without an image is not started."""

    images: Mapping[ServiceKind, str] = field(default_factory=dict)
    runtime_class: str = ""
