"""MIG profiles ordered by size.

Compute slices count first, memory second: 3g.40gb is larger than 2g.20gb, and 1g.20gb is larger than 1g.10gb.
A profile with extras (`+me`) is larger than the same profile without, and a shared one (`.shared`) is smaller
than the same profile for one pod alone.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from croupier.core.model import mig
from croupier.core.pods import request_parser

_MAX_LENGTH: Final = 80  # characters; the part of a resource's name after the slash has 63 at most
_SHARED: Final = "shared"


@dataclass(frozen=True, slots=True, order=True)
class ProfileSize:
    """A MIG profile, compared by size."""

    slices: int
    """Compute slices; for a compute instance (`1c.3g.40gb`) those of the instance."""
    memory: int
    """GB as in the name, which NVIDIA rounds up from GiB."""
    is_exclusive: bool = True
    """Memory and slices are shared neither by time slicing nor with other compute instances."""
    extras: tuple[str, ...] = ()
    name: str = ""
    resource: str = ""


@lru_cache(maxsize=1024)
def parse(resource: str) -> ProfileSize | None:
    """The profile of a resource such as `nvidia.com/mig-2g.20gb`; None for other resources."""
    name = request_parser.profile(resource) if len(resource) <= _MAX_LENGTH else None
    match = mig.PROFILE.fullmatch(name) if name is not None else None
    if name is None or match is None:
        return None
    extras = tuple(match["extras"].split(".")) if match["extras"] else ()
    return ProfileSize(
        int(match["instance"] or match["slices"]),
        int(match["memory"]),
        match["instance"] is None and _SHARED not in extras,
        extras,
        name,
        resource,
    )
